-- Takes a free lock that nobody waits for: the usual case, so it comes before everything else.
if ARGV[2] == 'wx' or ARGV[2] == 'nx' then
  local call, side = redis.call, string.sub(KEYS[2], 1, -2)
  local others = call('EXISTS', side .. 'e', side .. 'g')
  -- Claims that were withdrawn before they arrived are only a reason to look whether this is one.
  if others == 1 and call('EXISTS', side .. 'e') == 0 and not call('ZSCORE', side .. 'g', ARGV[1]) then
    others = 0
  end
  if others == 0 and call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then
    local rule, token = ARGV[5], 0
    -- A connection that has made sure of the counter once need only count on: whatever else makes a
    -- server lose its last numbers ends the connection too.
    if rule == '-' then token = call('INCR', KEYS[3]) end
    if token > 1e15 and token < 9e15 then
      token = string.format('%.0f', token)
    else
      local last, time = call('GET', KEYS[3]) or '0', call('TIME')
      token = time[1] .. string.sub('00000' .. time[2], -6)
      if tonumber(rule) or #last > #token or (#last == #token and last >= token) then
        if tonumber(rule) and (#last < #rule or (#last == #rule and last < rule)) then
          call('SET', KEYS[3], rule)
        end
        call('INCR', KEYS[3])
        token = call('GET', KEYS[3])
      else
        call('SET', KEYS[3], token)
      end
    end
    call('SET', KEYS[2], ARGV[1] .. ' ' .. token .. ' - ' .. ARGV[4], 'PX', ARGV[3])
    return token
  end
end
