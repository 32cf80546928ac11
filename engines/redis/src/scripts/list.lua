-- Some of the lock keys that hold a claim of ours. ARGV: where to go on, a pattern for lock keys, how many to
-- look at. Answers with where to go on and the keys. What a key holds is looked at here: to send all keys of
-- a database that is not for locks alone would be worse.
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3], 'TYPE', 'string')
local ours = {}
for _, key in ipairs(found[2]) do
  -- Not everything that is found may be read: a slot on its way to another server, a key of somebody else's.
  local start = redis.pcall('GETRANGE', key, '0', '33')
  if type(start) == 'string' and string.find(start, '^%x+[ +]%d$') and #start == 34 then
    table.insert(ours, key)
  end
end
return { found[1], ours }
