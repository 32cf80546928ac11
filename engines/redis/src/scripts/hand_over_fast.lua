-- Passes a lock on to the next in line, if that wants to hold it alone too, and can be told. The same as the
-- long way does, without its many functions, which take longer to make than to call.
if #ARGV == 2 and string.sub(ARGV[1], -1) == ' ' and owner == string.sub(ARGV[1], 1, -2) .. '+' then
  local call, E = redis.call, KEYS[2] or 'palisade:{' .. KEYS[1] .. '}:e'
  local T, side = KEYS[3] or 'palisade:t', string.sub(E, 1, -2)
  local S, W = side .. 's', side .. 'w'
  local line = call('ZRANGE', W, '0', '1')
  local id = line[1]
  local stored, expires = id and call('HGET', S, id), id and call('ZSCORE', E, id)
  local rest, client = string.match(stored or '', '^0 %- %d+( x %d+ %d+ (%x+) %- .*)$')
  if rest and expires then
    local time = call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local token = time[1] .. string.sub('00000' .. time[2], -6)
    local last = expires - now > 0 and (call('SET', T, token, 'GET') or '0')
    if last and not (#last < #token or (#last == #token and last < token)) then
      -- The clock is behind what was counted.
      call('SET', T, last)
    elseif last then
      local told = call('PUBLISH', 'palisade:wake:' .. client, 'G ' .. id .. ' ' .. token .. ' -')
      if told > 0 then
        call('HDEL', S, id)
        call('ZREM', W, id)
        call('ZREM', E, id)
        local mark = line[2] and '+' or ' '
        local value = id .. mark .. token .. ' - ' .. string.format('%d', now) .. rest
        call('SET', KEYS[1], value, 'PX', string.format('%d', expires - now))
        return 1
      end
    end
  end
end
