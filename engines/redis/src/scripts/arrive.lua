-- ARGV: a name for the tokens counted here, unless there is one; the run of this server.
-- Answers with the name that counts, and the run in which what is stored here began.
local born = redis.call('GET', KEYS[1])
if not born then
  born = ARGV[1] .. ' ' .. ARGV[2]
  redis.call('SET', KEYS[1], born)
end
return born
