-- ARGV: 1 to write or 0 to delete, value, 1 if it must be absent, version, stamp, expiry in µs,
--       token, kind, slot, source, 1 if strict. What is not asked for is empty.
local time = redis.call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local key, token = KEYS[1], ARGV[7]

local function answer(why, current)
  return { why, current or '', time[1], time[2], redis.call('HGETALL', key) }
end

if token ~= '' then
  local why, current = palisade_refusal(key, token, ARGV[8], ARGV[9], ARGV[10], ARGV[11] == '1')
  if why then return answer(why, current) end
end
local expires = redis.call('HGET', key, 'x')
local expired = expires and tonumber(expires) <= micros
local there = not expired and redis.call('HEXISTS', key, 'v') == 1
if ARGV[3] == '1' and there then return answer('exists') end
-- A value that expired counts as deleted, with a version of its own.
local version = redis.call('HGET', key, 'n') or '0'
local function bump()
  redis.call('HINCRBY', key, 'n', 1)
  version = redis.call('HGET', key, 'n')
end
if ARGV[4] ~= '' then
  local seen = version
  if expired then
    redis.call('HINCRBY', key, 'n', 1)
    seen = redis.call('HGET', key, 'n')
    redis.call('HINCRBY', key, 'n', -1)
  end
  if seen ~= ARGV[4] then return answer('version') end
end
local stamp = redis.call('HGET', key, 's')
if ARGV[5] ~= '' and stamp and not palisade_less(stamp, ARGV[5]) then return answer('stamp', stamp) end
if token ~= '' then palisade_raise(key, token, ARGV[8], ARGV[9], ARGV[10], true) end
if expired then
  bump()
  redis.call('HDEL', key, 'v', 'x')
end
if ARGV[1] == '0' and not there then return answer('done', version) end
bump()
redis.call('HDEL', key, 'x')
if ARGV[1] == '1' then redis.call('HSET', key, 'v', ARGV[2]) else redis.call('HDEL', key, 'v') end
if ARGV[6] ~= '' then redis.call('HSET', key, 'x', string.format('%.0f', micros + tonumber(ARGV[6]))) end
if ARGV[5] ~= '' then redis.call('HSET', key, 's', ARGV[5]) end
return answer('done', version)
