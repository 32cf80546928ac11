-- The fence of a register: a hash at `key` with a field 'f<slot>' per slot ('f-' for the whole), each
-- "exclusive shared written source". Numbers stay text: they may pass 2^53.
local function palisade_less(a, b)
  return #a < #b or (#a == #b and a < b)
end

local function palisade_max(a, b)
  if palisade_less(a, b) then return b end
  return a
end

-- Why a token may not pass, with what counts instead; nil if it may.
local function palisade_refusal(key, token, kind, slot, source, strict)
  local written = '0'
  local all = redis.call('HGETALL', key)
  for at = 1, #all, 2 do
    if string.sub(all[at], 1, 1) == 'f' then
      local cell = string.sub(all[at], 2)
      local exclusive, shared, wrote, from = string.match(all[at + 1], '^(%d+) (%d+) (%d+) (.*)$')
      if cell == slot then written = wrote end
      -- Slots do not fence each other; the whole and a slot do.
      if cell == slot or (cell == '-') ~= (slot == '-') then
        if from ~= source then return 'source', from end
        local mark = exclusive
        if kind == 'x' or cell ~= slot then mark = palisade_max(exclusive, shared) end
        if palisade_less(token, mark) then return 'stale', mark end
      end
    end
  end
  if strict and written ~= '0' and not palisade_less(written, token) then return 'spent', written end
end

-- Raises the fence to a token that may pass; `wrote` if it writes.
local function palisade_raise(key, token, kind, slot, source, wrote)
  local exclusive, shared, written = '0', '0', '0'
  local cell = redis.call('HGET', key, 'f' .. slot)
  if cell then exclusive, shared, written = string.match(cell, '^(%d+) (%d+) (%d+) ') end
  if kind == 'x' then exclusive = palisade_max(exclusive, token) else shared = palisade_max(shared, token) end
  if wrote then written = palisade_max(written, token) end
  redis.call('HSET', key, 'f' .. slot, exclusive .. ' ' .. shared .. ' ' .. written .. ' ' .. source)
end
