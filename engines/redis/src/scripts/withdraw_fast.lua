-- Gives back one lock that nobody waits for: the usual case, so it comes before everything else.
if #KEYS == 7 and redis.call('EXISTS', KEYS[4], KEYS[5], KEYS[6]) == 0
    and redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1], KEYS[2])
  return { 'r' }
end
