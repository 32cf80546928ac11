-- The same for several locks at once, with as few calls as can be. What they have in common is sent once: a '*',
-- flag and mode, and a '+' if the clock must be asked, a '#' if each has a floor, or a '=' and the first of a row
-- of floors; the TTL; the record up to the floor, and the rest of it. Then the id of each and a blank, and
-- with a '#' its floor. One that cannot be had this way takes the long one.
local answers, ARGV = {}, ARGV
if string.sub(ARGV[1], 1, 1) == '*' then
  local call, rule, how = redis.call, string.sub(ARGV[1], 2, 3), string.sub(ARGV[1], 4, 4)
  local row = tonumber(string.sub(ARGV[1], 5))
  local step = how == '#' and 2 or 1
  local count = (#ARGV - 4) / step
  local stride, keys = #KEYS / count, {}
  local T = stride == 3 and KEYS[3] or 'palisade:t'
  for at = 1, count do keys[at] = KEYS[(at - 1) * stride + 1] end
  keys[count + 1] = string.sub(T, 1, -2) .. 'm'
  local all_free = call('EXISTS', unpack(keys)) == 0
  local function is_free(at)
    local E = stride == 3 and KEYS[at * 3 - 1] or 'palisade:{' .. keys[at] .. '}:e'
    return call('EXISTS', keys[at], E, E .. 'g', string.sub(E, 1, -2) .. 'q') == 0
  end
  local last = call('INCRBY', T, count)
  local token, had, as_hinted = last - count, 0, how == '#' or how == '='
  if how == '+' then
    local time = call('TIME')
    token = math.max(token, time[1] * 1e6 + time[2] - 1)
  end
  local ttl, rest = ARGV[2], ARGV[3] .. '-' .. ARGV[4]
  for at = 1, count do
    local id, next = 5 + (at - 1) * step, token + 1
    if row or how == '#' then
      local hint = row and row + at or ARGV[id + 1] + 1
      if hint >= next then next = hint else as_hinted = false end
    end
    -- A counter that begins anew, or one too large to reckon with, is for the long way.
    if next > 1e15 and next < 9e15 and (all_free or is_free(at)) then
      local text = string.format('%d', next)
      -- Another one in this very call may have taken it.
      if call('SET', keys[at], ARGV[id] .. text .. rest, 'NX', 'PX', ttl) then
        answers[at], had, token = text, had + 1, next
      end
    end
  end
  -- Nobody was given what lies between. Larger numbers than these are not exact.
  if token ~= last and last < 9e15 then call('SET', T, string.format('%d', token)) end
  if had == count then
    -- In few words: the last of a row of tokens; or 0, each as hinted.
    if how == '' or how == '+' then return token end
    return as_hinted and 0 or answers
  end
  local long = {}
  for at = 1, count do
    local id = 5 + (at - 1) * step
    local floor = row and string.format('%d', row + at - 1) or how == '#' and ARGV[id + 1]
    long[at * 4 - 3], long[at * 4 - 2] = ARGV[id], rule .. (floor or how)
    long[at * 4 - 1], long[at * 4] = ttl, ARGV[3] .. (floor or '-') .. ARGV[4]
  end
  ARGV = long
end
