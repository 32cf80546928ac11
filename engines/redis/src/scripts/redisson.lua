-- The lock as Redisson has it: a hash at the key with one field for its owner, and a message when it
-- is free.
local function key_owner()
  local fields = redis.pcall('HKEYS', K)
  if fields['err'] then return 'no hash' end
  return fields[1]
end

local function key_set(owner, ms)
  redis.call('DEL', K)
  redis.call('HSET', K, owner, 1)
  redis.call('PEXPIRE', K, ms)
end

local function key_free()
  redis.call('DEL', K)
  local tag = string.find(K, '{', 1, true) and K or '{' .. K .. '}'
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. tag, '0')
  -- Redisson listens here where the server knows how, which is from version 7 on.
  redis.pcall('SPUBLISH', 'redisson_lock__channel:' .. tag, '0')
end
