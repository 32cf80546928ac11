-- Does everything once that the other scripts do, to keys that nobody uses: a user who may not is told
-- at once, and not in the middle of a release. Answers with what was refused, if anything was.
local lock, side = KEYS[1], KEYS[2]
local all = {
  { 'EXISTS', lock, side },
  { 'SET', lock, '1', 'NX', 'PX', 1 },
  { 'SET', lock, '1', 'XX', 'KEEPTTL' },
  { 'GET', lock },
  { 'MGET', lock },
  { 'GETRANGE', lock, 0, 32 },
  { 'PTTL', lock },
  { 'PEXPIRE', lock, 1 },
  { 'PEXPIREAT', lock, 1 },
  { 'DEL', lock },
  { 'TIME' },
  { 'INCRBY', side, 1 },
  { 'DEL', side },
  { 'HSET', side, 'a', '1' },
  { 'HSETNX', side, 'a', '1' },
  { 'HGET', side, 'a' },
  { 'HGETALL', side },
  { 'HKEYS', side },
  { 'HEXISTS', side, 'a' },
  { 'HINCRBY', side, 'a', 1 },
  { 'HDEL', side, 'a' },
  { 'ZADD', side, 1, 'a' },
  { 'ZSCORE', side, 'a' },
  { 'ZRANK', side, 'a' },
  { 'ZCARD', side },
  { 'ZRANGE', side, 0, 0 },
  { 'ZREVRANGE', side, 0, 0 },
  { 'ZRANGEBYSCORE', side, 0, 1 },
  { 'ZREMRANGEBYSCORE', side, 0, 0 },
  { 'ZREM', side, 'a' },
  { 'DEL', side },
  { 'RPUSH', side, 'a' },
  { 'LINDEX', side, 0 },
  { 'LRANGE', side, 0, 0 },
  { 'LPOP', side },
  { 'LPUSH', side, 'a' },
  { 'DEL', side },
  { 'PUBLISH', 'palisade:wake:rights', '' },
}
for _, command in ipairs(all) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer['err'] then
    return { command[1], command[2] or '', answer['err'] }
  end
end
return {}
