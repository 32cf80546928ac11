-- Raises the fence, or ends the script with an error before it has written anything.
local function palisade_admit(key, token, kind, slot, source)
  local why, current = palisade_refusal(key, token, kind, slot, source, false)
  if why then return { err = 'PALISADE ' .. why .. ' ' .. token .. ' ' .. current } end
  palisade_raise(key, token, kind, slot, source, true)
end
