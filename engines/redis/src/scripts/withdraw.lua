-- ARGV: the id of each claim, with a '?' if it may have been sent more than once, else a blank; the longest TTL
local function withdraw(id, ttl, doubtful)
  -- Another copy of it may still be on its way, and must not come in after this.
  if doubtful then bury(id, ttl) end
  if key_owner() == id then
    hand_over()
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

for at = 1, #ARGV - 1 do
  if not answers[at] then
    use(at, #ARGV - 1)
    local id = ARGV[at]
    answers[at] = try(withdraw, string.sub(id, 1, -2), tonumber(ARGV[#ARGV]), string.sub(id, -1) == '?')
  end
end
return answers
