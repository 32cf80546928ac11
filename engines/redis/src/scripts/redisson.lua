-- The lock as Redisson has it: a hash at the key with one field for its owner, and a message when it
-- is free. Who holds alone has its record beside it.
local function beside()
  return string.sub(E, 1, -2) .. 'r'
end

local function key_read()
  local fields = redis.pcall('HKEYS', K)
  if fields['err'] then return 'no hash' end
  local stored = fields[1] and redis.call('GET', beside())
  if stored and string.sub(stored, 1, #fields[1] + 1) == fields[1] .. ' ' then
    return fields[1], string.sub(stored, #fields[1] + 2)
  end
  return fields[1]
end

local function key_share(owner, ms)
  redis.call('DEL', K)
  redis.call('HSET', K, owner, 1)
  redis.call('PEXPIRE', K, ms)
end

local function key_take(id, stored, ms)
  key_share(id, ms)
  redis.call('SET', beside(), id .. ' ' .. stored, 'PX', ms)
end

local function key_change(id, stored)
  redis.call('SET', beside(), id .. ' ' .. stored, 'PX', math.max(1, redis.call('PTTL', K)))
end

-- Every release takes the long way, and sees who waits.
local function key_mark() end

local function key_keep(ms)
  redis.call('PEXPIRE', K, ms)
  redis.call('PEXPIRE', beside(), ms)
end

local function key_free()
  redis.call('DEL', K, beside())
  local tag = string.find(K, '{', 1, true) and K or '{' .. K .. '}'
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. tag, '0')
  -- Redisson listens here where the server knows how, which is from version 7 on.
  redis.pcall('SPUBLISH', 'redisson_lock__channel:' .. tag, '0')
end
