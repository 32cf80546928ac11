-- The lock as most clients have it: a string at the key, whose value is unique to the claim.
local function key_owner()
  local value = redis.pcall('GET', K)
  -- Another client's hash, list or set: whatever it is, the resource is taken.
  if type(value) == 'table' then return 'no string' end
  return value or nil
end

local function key_set(owner, ms)
  redis.call('SET', K, owner, 'PX', ms)
end

local function key_free()
  redis.call('DEL', K)
end
