-- The lock as most clients have it: a string at the key, whose value is unique to the claim. Ours is the
-- claim's id, a mark ('+' if somebody waits, else a blank), and its record.
local function key_read()
  local value = redis.pcall('GET', K)
  -- Another client's hash, list or set: whatever it is, the resource is taken.
  if type(value) == 'table' then return 'no string' end
  if not value then return nil end
  local id, mark, stored = string.match(value, '^(%x+)([ +])(%d+ %S+ %d+ %a %d+ %d+ %x+ %S+ .*)$')
  if id and #id == 32 then return id, stored, mark end
  return value
end

local function key_write(id, stored, mark, ...)
  redis.call('SET', K, id .. mark .. stored, ...)
end

-- Lets one claim in, alone.
local function key_take(id, stored, ms)
  key_write(id, stored, redis.call('EXISTS', E) == 1 and '+' or ' ', 'PX', ms)
end

-- Changes the record of whoever is in alone.
local function key_change(id, stored)
  key_write(id, stored, redis.call('EXISTS', E) == 1 and '+' or ' ', 'XX', 'KEEPTTL')
end

-- Tells whoever is in alone that somebody waits: who gives back an unmarked lock wakes nobody.
local function key_mark()
  local id, stored, mark = key_read()
  if mark == ' ' then key_write(id, stored, '+', 'XX', 'KEEPTTL') end
end

-- Says that the resource is shared, in a way that others understand as taken.
local function key_share(marker, ms)
  redis.call('SET', K, marker, 'PX', ms)
end

local function key_keep(ms)
  redis.call('PEXPIRE', K, ms)
end

local function key_free()
  redis.call('DEL', K)
end
