-- ARGV: nothing; or token, kind, slot, source, and 1 to start the fence anew
local time = redis.call('TIME')
local key, token, kind, slot, source = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local why, current
if token and ARGV[5] == '1' then
  local all = redis.call('HGETALL', key)
  for at = 1, #all, 2 do
    local field = all[at]
    if string.sub(field, 1, 1) == 'f' then
      local from = string.match(all[at + 1], '^%d+ %d+ %d+ (.*)$')
      if field == 'f' .. slot or from ~= source then redis.call('HDEL', key, field) end
    end
  end
  palisade_raise(key, token, kind, slot, source, false)
elseif token then
  why, current = palisade_refusal(key, token, kind, slot, source, false)
  if not why then palisade_raise(key, token, kind, slot, source, false) end
end
return { why or '', current or '', time[1], time[2], redis.call('HGETALL', key) }
