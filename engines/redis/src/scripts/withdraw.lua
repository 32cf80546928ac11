-- ARGV: id and TTL of each claim
local answers = {}

local function withdraw(id, ttl)
  if key_owner() == id then
    key_free()
    redis.call('DEL', R)
    purge()
    promote()
    return 'r'
  end
  purge()
  local record = member(id)
  if not record then
    -- It may still be on its way: it must not come in after this.
    bury(id, 'withdrawn', ttl)
    return 'g'
  end
  forget(id, record)
  tidy()
  promote()
  return record.token == '0' and 'q' or 'r'
end

for at = 1, #ARGV / 2 do
  use(at * 3 - 2)
  answers[at] = withdraw(ARGV[at * 2 - 1], tonumber(ARGV[at * 2]))
end
return answers
