-- ARGV of each claim: id and a blank; w(ait), r (the same for one that was asked for before), n(o wait) or a(sk
-- only), the mode, and a floor for the token or a '+' if the clock must be asked; TTL; record from the slot on
local id, flag, ttl, asked, mode, of, floor

local function granted(token, slot, ms)
  return { 'g', token, slot, ms }
end

-- Where a claim stands in line, and when it should look again by itself.
local function queued(rank, left)
  rank = rank or redis.call('ZRANK', W, id)
  left = left or tonumber(redis.call('ZSCORE', E, id)) - now
  if rank > 0 then
    local ends = redis.call('ZSCORE', E, redis.call('ZRANGE', W, 0, 0)[1])
    return { 'q', rank, left, ends and tonumber(ends) - now or 0, 0 }
  end
  local owner, ours, mark = key_read()
  -- Bare commands do not look who waits (bare.rs): without the mark, a release would wake nobody.
  if mark == ' ' then key_mark() end
  local look = owner and redis.call('PTTL', K) or 0
  local first = redis.call('ZRANGE', E, 0, 0, 'WITHSCORES')[2]
  if first and (look < 0 or is_marker(owner)) then look = tonumber(first) - now end
  local foreign = owner and not is_marker(owner) and not ours
  return { 'q', 0, left, look, foreign and 1 or 0 }
end

-- Takes a place in line.
local function enqueue()
  redis.call('ZADD', W, redis.call('HINCRBY', S, 'n', 1), id)
  redis.call('ZADD', E, now + ttl, id)
  asked.since = tostring(now)
  redis.call('HSET', S, id, format(asked))
  if mode == 'p' then redis.call('HSET', S, 'of', of) end
  local rank = redis.call('ZRANK', W, id)
  -- Only the first may have come to an empty list, which has no TTL yet.
  keep(ttl, rank == 0)
  if rank == 0 then key_mark() end
  return queued(rank, ttl)
end

-- A grant that asks for a greater token, because a quorum counted further.
local function raised(record)
  if floor == '-' or less(floor, record.token) then return false end
  record.token = next_token(floor)
  return true
end

-- The answer for a claim that is here already.
local function known()
  local alone, owner = holder()
  if owner == id then
    if raised(alone) then key_change(id, format(alone)) end
    return granted(alone.token, '-', redis.call('PTTL', K))
  end
  local record = member(id)
  if not record then return nil end
  if redis.call('ZSCORE', W, id) then
    if floor ~= '-' then
      record.floor = floor
      redis.call('HSET', S, id, format(record))
    end
    promote(id)
    if key_owner() == id then return granted(holder().token, '-', redis.call('PTTL', K)) end
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

-- Whether a claim that is new here has to wait, for sure: there is a line already, and one of ours inside.
local function must_wait()
  if flag ~= 'w' or mode ~= 'x' or redis.call('HEXISTS', S, id) == 1 then return false end
  local owner, stored, mark = key_read()
  return mark == '+' and owner ~= id
end

local function claim(at)
  use(at, #ARGV / 4)
  local arg = at * 4 - 4
  id, flag, mode = string.sub(ARGV[arg + 1], 1, -2), string.sub(ARGV[arg + 2], 1, 1), string.sub(ARGV[arg + 2], 2, 2)
  if flag == 'r' then flag = 'w' end
  ttl, asked = tonumber(ARGV[arg + 3]), parse('0' .. ARGV[arg + 4])
  of, floor = asked.of, asked.floor
  local why = buried(id)
  if why and flag ~= 'a' then return { 'l', why } end
  if must_wait() then return enqueue() end
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
    return enqueue()
  end
  if mode == 'p' then redis.call('HSET', S, 'of', of) end
  local token = next_token(floor)
  let_in(id, asked, slot, token, ttl)
  return granted(token, slot, ttl)
end

if #ARGV == 4 then return claim(1) end
for at = 1, #ARGV / 4 do
  if not answers[at] then answers[at] = try(claim, at) end
end
return answers
