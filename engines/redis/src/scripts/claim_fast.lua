-- Takes a free lock that nobody waits for: the usual case, so it comes before everything else.
if ARGV[3] == 'x' and ARGV[6] ~= 'a' and redis.call('EXISTS', KEYS[4], KEYS[5], KEYS[6]) == 0
    and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[5]) then
  local time, floor = redis.call('TIME'), ARGV[7]
  local micros = string.sub('00000' .. time[2], -6)
  local token, last = time[1] .. micros, redis.call('GET', KEYS[7]) or '0'
  if floor == '-' and (#last < #token or (#last == #token and last < token)) then
    redis.call('SET', KEYS[7], token)
  else
    if floor ~= '-' and (#last < #floor or (#last == #floor and last < floor)) then
      redis.call('SET', KEYS[7], floor)
    end
    redis.call('INCR', KEYS[7])
    token = redis.call('GET', KEYS[7])
  end
  local since = time[1] .. string.sub(micros, 1, 3)
  redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. token .. ' - ' .. since .. ' ' .. ARGV[2], 'PX', ARGV[5])
  return { 'g', token, '-', ARGV[5] }
end
