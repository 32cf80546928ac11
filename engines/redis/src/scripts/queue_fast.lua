-- Joins a line behind one of ours that holds alone: the usual case of a lock that many want. The same as the
-- long way does, without its many functions, which take longer to make than to call. No token is made here, so
-- the clock need not be asked for one.
if there == 2 and (rule == 'wx' or rule == 'wx+') then
  local call, E = redis.call, KEYS[2] or 'palisade:{' .. KEYS[1] .. '}:e'
  local id, side = string.sub(ARGV[1], 1, -2), string.sub(E, 1, -2)
  local S, W = side .. 's', side .. 'w'
  local owner, rank = redis.pcall('GETRANGE', KEYS[1], '0', '32'), call('ZCARD', W)
  local ends = rank > 0 and call('ZSCORE', E, call('ZRANGE', W, '0', '0')[1])
  -- There are the lock and a line, hence no claims that must not come in. Who is in line already is for the
  -- long way.
  if ends and type(owner) == 'string' and string.sub(owner, 33) == '+' and string.sub(owner, 1, 32) ~= id
    and call('PTTL', S) > ARGV[3] + 1000 and call('HSETNX', S, id, '0' .. ARGV[4]) == 1 then
    local time = call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    call('ZADD', W, string.format('%d', call('HINCRBY', S, 'n', '1')), id)
    call('ZADD', E, string.format('%d', now + ARGV[3]), id)
    -- The head of the line may have died: then it is time to look now.
    return { 'q', rank, tonumber(ARGV[3]), math.max(0, ends - now), 0 }
  end
end
