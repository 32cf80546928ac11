-- Passes a lock on to the next in line, if that wants to hold it alone too, and can be told. The same as the
-- long way does, without its many functions, which take longer to make than to call.
if #ARGV == 2 and string.sub(ARGV[1], -1) == ' ' and owner == string.sub(ARGV[1], 1, -2) .. '+' then
  local call, E = redis.call, KEYS[2] or 'palisade:{' .. KEYS[1] .. '}:e'
  local T, side = KEYS[3] or 'palisade:t', string.sub(E, 1, -2)
  local S, W, Q = side .. 's', side .. 'w', side .. 'q'
  local line = call('ZRANGE', W, '0', '1')
  local id, entry, expires, rest, client = line[1], nil, nil, nil, nil
  if id then
    rest, client = string.match(call('HGET', S, id) or '', '^0 %- %d+( x %d+ %d+ (%x+) %- .*)$')
    expires = tonumber(call('ZSCORE', E, id) or 0)
  else
    entry = call('LPOP', Q)
    if entry then
      id, expires = string.sub(entry, 1, 32), tonumber(string.sub(entry, 33, 45))
      rest, client = string.match(entry, '^ %- %d+( x %d+ %d+ (%x+) %- .*)$', 46)
    end
  end
  -- One that came twice, and has had its turn, is for the long way.
  if rest and expires and id .. '+' ~= owner then
    local time = call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local token = time[1] .. string.sub('00000' .. time[2], -6)
    local last = expires > now and (call('SET', T, token, 'GET') or '0')
    if last and not (#last < #token or (#last == #token and last < token)) then
      -- The clock is behind what was counted.
      call('SET', T, last)
    elseif last then
      local told = call('PUBLISH', 'palisade:wake:' .. client, 'G ' .. id .. ' ' .. token .. ' -')
      if told > 0 then
        if not entry then
          call('HDEL', S, id)
          call('ZREM', W, id)
          call('ZREM', E, id)
        end
        local mark = (line[2] or call('EXISTS', Q) == 1) and '+' or ' '
        local value = id .. mark .. token .. ' - ' .. string.format('%d', now) .. rest
        call('SET', KEYS[1], value, 'PXAT', string.format('%d', expires))
        return 1
      end
    end
  end
  -- It keeps its place. A list that is empty for a moment loses its TTL.
  if entry and call('LPUSH', Q, entry) == 1 and expires then call('PEXPIREAT', Q, expires + 1000) end
end
