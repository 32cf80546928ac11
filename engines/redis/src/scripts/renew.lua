-- ARGV: id and TTL of each claim. Answers 1, or why it is gone.
local answers = {}

local function renew(id, ttl)
  if key_owner() == id then
    key_keep(ttl)
    return 1
  end
  local expires, record = redis.call('ZSCORE', E, id), member(id)
  if record and tonumber(expires) > now then
    redis.call('ZADD', E, now + ttl, id)
    if record.token ~= '0' then
      local owner = key_owner()
      if is_marker(owner) then
        if redis.call('PTTL', K) < ttl then redis.call('PEXPIRE', K, ttl) end
      elseif not owner then
        key_share(redis.call('HGET', S, 's') or SHARED, ttl)
      end
    end
    keep(ttl)
    return 1
  end
  return buried(id) or ''
end

for at = 1, #ARGV / 2 do
  use(at, #ARGV / 2)
  answers[at] = renew(ARGV[at * 2 - 1], tonumber(ARGV[at * 2]))
end
return answers
