-- ARGV: id, 'v' with the new record's tail, or 'm' with the new mode and number of slots
use(1, 1)
purge()
local id, alone, owner = ARGV[1], holder()
if owner ~= id then alone = nil end
local record = alone or member(id)
if not record then return { 'u', buried(id) or '' } end

local function put()
  if alone then
    key_change(id, format(record))
  else
    redis.call('HSET', S, id, format(record))
  end
end

if ARGV[2] == 'v' then
  record.tail = ARGV[3]
  put()
  return { 'd' }
end
local mode, of = ARGV[3], tonumber(ARGV[4])
if alone and mode == 's' then
  local ms = math.max(1, redis.call('PTTL', K))
  local since = record.since
  record.mode = 's'
  key_free()
  redis.call('ZADD', E, now + ms, id)
  let_in(id, record, '-', record.token, ms)
  record.since = since
  redis.call('HSET', S, id, format(record))
elseif record.mode == 'p' and mode == 'p' and of > 0 then
  redis.call('HSET', S, 'of', of)
  for _, other in ipairs(redis.call('ZRANGE', E, 0, -1)) do
    local one = redis.call('HGET', S, other)
    local parsed = one and parse(one)
    if parsed and parsed.mode == 'p' then
      parsed.of = of
      redis.call('HSET', S, other, format(parsed))
    end
  end
elseif record.mode ~= mode or (mode == 'p' and record.of ~= of) then
  return { 'n', record.mode, tostring(record.of), record.token == '0' and 0 or 1 }
end
promote()
return { 'd' }
