-- ARGV: id, reason
use(1, 1)
purge()
local id, owner, stored = ARGV[1], key_read()
local record = stored and parse(stored)
if owner == id and record then
  key_free()
elseif owner and not record and not is_marker(owner) and string.sub(redis.sha1hex(owner), 1, 32) == id then
  -- Another client's lock, shown under a name made from its value; but not whatever else there is.
  if owner == 'no string' or owner == 'no hash' then return 2 end
  key_free()
  promote()
  return 1
else
  record = member(id)
  if not record then return 0 end
  forget(id, record)
  tidy()
end
bury(id, tonumber(record.ttl), ARGV[2])
redis.call('PUBLISH', 'palisade:wake:' .. record.client, 'X ' .. id .. ' ' .. ARGV[2])
promote()
return 1
