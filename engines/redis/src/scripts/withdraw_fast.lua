-- Gives back one lock that nobody waits for: the usual case, so it comes before everything else.
if #KEYS == 3 and ARGV[3] == '0' and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  local side = string.sub(KEYS[2], 1, -2)
  if redis.call('EXISTS', side .. 'e') == 0 then
    redis.call('DEL', KEYS[1], KEYS[2])
    return 1
  end
end
