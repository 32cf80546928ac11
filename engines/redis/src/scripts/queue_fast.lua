-- Joins a line behind one of ours that holds alone: the usual case of a lock that many want. The same as the
-- long way does, without its many functions, which take longer to make than to call. No token is made here, so
-- the clock need not be asked for one. Who comes this way stands in Q behind all of W, which is one command
-- instead of four, and four less to be let in; whoever takes the long way puts it in its place first. Not for a
-- claim that was asked for before: it may be in line.
if there and there > 1 and (rule == 'wx' or rule == 'wx+') then
  local call, E = redis.call, KEYS[2] or 'palisade:{' .. KEYS[1] .. '}:e'
  local side = string.sub(E, 1, -2)
  local Q, ttl, waiting = side .. 'q', ARGV[3], 0
  local first = call('LINDEX', Q, '0')
  local ends = first and string.sub(first, 33, 45)
  -- More than the lock and Q: then E must be it, and G is not there.
  if there > 2 or not first then
    local W = side .. 'w'
    waiting = call('ZCARD', W)
    ends = waiting > 0 and there == (first and 3 or 2) and call('ZSCORE', E, call('ZRANGE', W, '0', '0')[1])
  end
  local owner, id = redis.pcall('GETRANGE', KEYS[1], '0', '32'), string.sub(ARGV[1], 1, -2)
  if ends and type(owner) == 'string' and string.sub(owner, 33) == '+' and string.sub(owner, 1, 32) ~= id then
    local time = call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local ahead = waiting + call('RPUSH', Q, id .. string.format('%013d', now + ttl) .. ARGV[4]) - 1
    if call('PTTL', Q) < ttl + 1000 then
      local longer, M = 2 * ttl + 1000, string.sub(KEYS[3] or 'palisade:t', 1, -2) .. 'm'
      call('PEXPIRE', Q, longer)
      if call('PTTL', M) < longer then call('SET', M, '', 'PX', longer) end
    end
    -- The head of the line may have died: then it is time to look now.
    return { 'q', ahead, tonumber(ttl), math.max(0, ends - now), 0 }
  end
end
