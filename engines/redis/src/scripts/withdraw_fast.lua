-- Gives back locks that nobody waits for: the usual case, so it comes before everything else. Whoever comes
-- to wait says so behind the owner's id, and whoever is in doubt does not send what stands there.
local owner, count = nil, #ARGV - 1
if count == 1 then
  owner = redis.pcall('GETRANGE', KEYS[1], '0', '32')
  if owner == ARGV[1] then
    redis.call('DEL', KEYS[1])
    return 1
  end
end
-- Not before: to make a table takes longer than to compare.
local answers = {}
if count > 1 then
  local locks, free, stride = {}, {}, #KEYS / count
  for at = 1, count do locks[at] = KEYS[(at - 1) * stride + 1] end
  local owners = redis.call('MGET', unpack(locks))
  for at = 1, count do
    if owners[at] and string.sub(owners[at], 1, 33) == ARGV[at] then
      answers[at], free[#free + 1] = 'r', locks[at]
    end
  end
  if #free > 0 then redis.call('DEL', unpack(free)) end
  if #free == count then return 1 end
end
