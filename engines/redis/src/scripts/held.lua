-- ARGV: ids. Answers 1 for a claim that still holds, or why it is gone.
local answers = {}
for at = 1, #ARGV do
  use(at, #ARGV)
  local expires = redis.call('ZSCORE', E, ARGV[at])
  if key_owner() == ARGV[at] or (expires and tonumber(expires) > now) then
    answers[at] = 1
  else
    answers[at] = buried(ARGV[at]) or ''
  end
end
return answers
