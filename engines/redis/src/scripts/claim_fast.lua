-- Takes a free lock that nobody waits for: the usual case, so it comes before everything else. Each call
-- of a command costs the server about as much as a bare SET, and there are three: they are all it takes.
local rule, there = ARGV[2], nil
if #ARGV == 4 and (rule == 'wx' or rule == 'nx' or string.find(rule, '^[wn]x')) then
  local call = redis.call
  there = call('EXISTS', KEYS[1], KEYS[3] and string.sub(KEYS[3], 1, -2) .. 'm' or 'palisade:m')
  -- Somebody waits somewhere, or must not come in any more: perhaps here.
  if there > 0 then
    local E = KEYS[2] or 'palisade:{' .. KEYS[1] .. '}:e'
    there = call('EXISTS', KEYS[1], E, E .. 'g', string.sub(E, 1, -2) .. 'q')
  end
  if there == 0 then
    local T = KEYS[3] or 'palisade:t'
    local token = call('INCRBY', T, '1')
    if #rule > 2 then
      local floor = tonumber(string.sub(rule, 3))
      if not floor then
        local time = call('TIME')
        floor = time[1] * 1e6 + time[2] - 1
      end
      if token <= floor then
        token = floor + 1
        if token < 9e15 then call('SET', T, string.format('%d', token)) end
      end
    end
    -- A counter that begins anew, or one too large to reckon with, is for the long way.
    if token > 1e15 and token < 9e15 then
      token = string.format('%d', token)
      call('SET', KEYS[1], ARGV[1] .. token .. ARGV[4], 'PX', ARGV[3])
      return token
    end
  end
end
