-- ARGV: id; w(ait), n(o wait) or a(sk only), and the mode; TTL; record; a floor for the token, or how to
-- count without one
use(1)
local id, flag, ttl = ARGV[1], string.sub(ARGV[2], 1, 1), tonumber(ARGV[3])
local asked = parse('0 - ' .. ARGV[4])
local mode, of, floor = asked.mode, asked.of, asked.floor

local function granted(token, slot, ms)
  return { 'g', token, slot, ms }
end

-- Where a claim stands in line, and when it should look again by itself.
local function queued()
  local rank, owner = redis.call('ZRANK', W, id), key_owner()
  local foreign = owner and not is_marker(owner) and not holder(owner)
  local look
  if rank == 0 then
    look = owner and redis.call('PTTL', K) or 0
    local first = redis.call('ZRANGE', E, 0, 0, 'WITHSCORES')[2]
    if first and (look < 0 or is_marker(owner)) then look = tonumber(first) - now end
  else
    local head = redis.call('ZRANGE', W, 0, 0)[1]
    look = tonumber(redis.call('ZSCORE', E, head)) - now
  end
  local left = tonumber(redis.call('ZSCORE', E, id)) - now
  return { 'q', rank, left, look, (foreign and rank == 0) and 1 or 0 }
end

-- A grant that asks for a greater token, because a quorum counted further.
local function raised(record)
  if floor == '-' or less(floor, record.token) then return false end
  record.token = next_token(floor)
  return true
end

-- The answer for a claim that is here already.
local function known()
  local owner = key_owner()
  if owner == id then
    local record, ms = holder(owner), redis.call('PTTL', K)
    if not record then
      record = asked
      record.token = next_token(floor)
      redis.call('SET', R, id .. ' ' .. format(record), 'PX', ms)
    elseif raised(record) then
      redis.call('SET', R, id .. ' ' .. format(record), 'PX', ms)
    end
    return granted(record.token, '-', ms)
  end
  local record = member(id)
  if not record then return nil end
  if redis.call('ZSCORE', W, id) then
    if floor ~= '-' then
      record.floor = floor
      redis.call('HSET', S, id, format(record))
    end
    promote(id)
    if key_owner() == id then return granted(holder(id).token, '-', redis.call('PTTL', K)) end
    if redis.call('ZSCORE', W, id) then return queued() end
    record = member(id)
  end
  if raised(record) then redis.call('HSET', S, id, format(record)) end
  return granted(record.token, record.slot, tonumber(redis.call('ZSCORE', E, id)) - now)
end

-- The number of slots in force, if it is another one.
local function other_number()
  local force = mode == 'p' and redis.call('HGET', S, 'of')
  if not force or tonumber(force) == of then return nil end
  for _, other in ipairs(redis.call('ZRANGE', E, 0, -1)) do
    local stored = redis.call('HGET', S, other)
    if stored and parse(stored).mode == 'p' then return force end
  end
end

local why = buried(id)
if why and flag ~= 'a' then return { 'l', why } end
cap()
purge()
local answer = known()
if answer then return answer end
if flag == 'a' then return { 'u', why or '' } end
local conflict = other_number()
if conflict then return { 'c', conflict } end
local blocked = promote()
local may, slot = admits(mode, of)
if blocked or not may then
  if flag == 'n' then return { 'b', tostring(now), view(true) } end
  redis.call('ZADD', W, redis.call('HINCRBY', S, 'n', 1), id)
  redis.call('ZADD', E, now + ttl, id)
  asked.since = tostring(now)
  redis.call('HSET', S, id, format(asked))
  if mode == 'p' then redis.call('HSET', S, 'of', of) end
  keep(ttl)
  return queued()
end
if mode == 'p' then redis.call('HSET', S, 'of', of) end
local token = next_token(floor)
let_in(id, asked, slot, token, ttl)
return granted(token, slot, ttl)
