-- ARGV: of each claim its id, its TTL, and 1 if it may have been sent more than once
local answers = {}

local function withdraw(id, ttl, doubtful)
  -- Another copy of it may still be on its way, and must not come in after this.
  if doubtful then bury(id, ttl) end
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
    bury(id, ttl)
    return 'g'
  end
  forget(id, record)
  tidy()
  promote()
  return record.token == '0' and 'q' or 'r'
end

for at = 1, #ARGV / 3 do
  use(at * 3 - 2)
  answers[at] = withdraw(ARGV[at * 3 - 2], tonumber(ARGV[at * 3 - 1]), ARGV[at * 3] == '1')
end
return answers
