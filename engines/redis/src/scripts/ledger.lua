-- Who holds and who waits for one resource. All numbers that may pass 2^53 stay text.
--
-- K  the lock itself, with the record of whoever holds it alone
-- S  records of the others by claim id; 's<slot>' the id in a slot; 'of' slots in force; 'n' arrivals so far
-- W  who waits, by arrival     E  who waits or shares, by expiry
-- Q  who came to the line after all of those, by a shortcut: id, expiry and record of each in one text
-- G  claims that must not come in any more; X  why an operator ended them
-- T  the last token of this hash slot
-- M  there is an E, a G or a Q of some resource of this hash slot, or was lately
local now, micros, M, Q, line_up

-- Turns to one of `count` claims. Where the others follow from the lock key, that is all that is sent.
local function use(at, count)
  if #KEYS == count then
    K = KEYS[at]
    E, T = 'palisade:{' .. K .. '}:e', 'palisade:t'
  else
    K, E, T = KEYS[at * 3 - 2], KEYS[at * 3 - 1], KEYS[at * 3]
  end
  -- The others differ from E in their last letter, and so share its slot.
  local side = string.sub(E, 1, -2)
  S, W, X, G, Q = side .. 's', side .. 'w', side .. 'x', E .. 'g', side .. 'q'
  M = string.sub(T, 1, -2) .. 'm'
  line_up()
end

do
  local time = redis.call('TIME')
  micros = time[1] .. string.sub('00000' .. time[2], -6)
  now = tonumber(string.sub(micros, 1, -4))
end

local SHARED, SLOTS = 'palisade:shared', 'palisade:slots'

-- What a function answers, or why it failed: one of many claims must not fail all.
local function try(verb, ...)
  local done, answer = pcall(verb, ...)
  if done then return answer end
  return { 'e', type(answer) == 'table' and answer.err or tostring(answer) }
end

local function less(a, b)
  return #a < #b or (#a == #b and a < b)
end

-- At least the server's time, so that a lost counter does not make tokens fall. Who brings a floor
-- counts for a quorum, where nodes agree only if none of them looks at its own clock.
local function next_token(floor)
  local last = redis.call('GET', T) or '0'
  if floor == '-' and less(last, micros) then
    redis.call('SET', T, micros)
    return micros
  end
  if floor ~= '-' and less(last, floor) then redis.call('SET', T, floor) end
  redis.call('INCRBY', T, '1')
  return redis.call('GET', T)
end

local function parse(stored)
  local token, slot, since, rest = string.match(stored, '^(%d+) (%S+) (%d+) (.*)$')
  local mode, of, ttl, client, floor, tail = string.match(rest, '^(%a) (%d+) (%d+) (%S+) (%S+) (.*)$')
  return { token = token, slot = slot, since = since, mode = mode, of = tonumber(of), ttl = ttl,
    client = client, floor = floor, tail = tail }
end

local function format(record)
  return table.concat({ record.token, record.slot, record.since, record.mode,
    string.format('%d', record.of), record.ttl, record.client, record.floor, record.tail }, ' ')
end

local function key_owner()
  return (key_read())
end

-- The record of whoever holds alone, if that is one of ours.
local function holder()
  local id, stored = key_read()
  if stored then return parse(stored), id end
end

-- Has whoever looks for a free lock look at more than the lock.
local function mark_busy(ms)
  if redis.call('PTTL', M) < ms then redis.call('SET', M, '', 'PX', string.format('%d', ms)) end
end

-- Keeps the lists a little longer than their longest member; much longer at first, so that it need not be
-- done each time. All end together, but for one that has just begun.
local function keep(ms, begun)
  local left = redis.call('PTTL', S)
  if not begun and left >= ms + 1000 then return end
  local longer = math.max(left, 2 * ms + 1000)
  for _, key in ipairs({ S, W, E }) do redis.call('PEXPIRE', key, longer) end
  mark_busy(longer)
end

local function insiders()
  return redis.call('ZCARD', E) - redis.call('ZCARD', W)
end

local function forget(id, record)
  redis.call('ZREM', E, id)
  redis.call('ZREM', W, id)
  redis.call('HDEL', S, id)
  if record and record.slot ~= '-' then redis.call('HDEL', S, 's' .. record.slot) end
end

-- The record of a claim that waits or shares. A clock that jumps can end one of the lists before the
-- others: what has no expiry any more, or waits in no line, is no claim.
local function member(id)
  local stored = redis.call('HGET', S, id)
  if not stored then return nil end
  local record = parse(stored)
  if redis.call('ZSCORE', E, id) and (record.token ~= '0' or redis.call('ZSCORE', W, id)) then
    return record
  end
  forget(id, record)
end

local function is_marker(owner)
  return owner == SHARED or owner == SLOTS
end

-- Takes the marker away with the last of those who share, and the lists with the last claim.
local function tidy()
  if insiders() == 0 and is_marker(key_owner()) then key_free() end
  if redis.call('EXISTS', E) == 0 then redis.call('DEL', S, W) end
end

-- Notes that a claim must not come in any more, for longer than one can be on its way.
local function bury(id, ms, reason)
  ms = math.max(ms, 60000)
  redis.call('ZREMRANGEBYSCORE', G, '-inf', now)
  redis.call('ZADD', G, now + ms, id)
  if redis.call('PTTL', G) < ms then redis.call('PEXPIRE', G, ms) end
  mark_busy(ms)
  if reason then
    redis.call('HSET', X, id, reason)
    redis.call('PEXPIRE', X, ms)
  end
end

-- Why a claim must not come in, if so: nothing, or what the operator wrote who ended it.
local function buried(id)
  local expires = redis.call('ZSCORE', G, id)
  if not expires or tonumber(expires) <= now then return nil end
  local reason = redis.call('HGET', X, id)
  return reason and 'evicted ' .. reason or 'withdrawn'
end

-- Puts those who came by the shortcut in their place in line. One that came twice is there already. What somebody
-- else put there is thrown away, or left: it must not fail the other claims of a call.
line_up = function()
  local came = redis.pcall('LRANGE', Q, 0, -1)
  if #came == 0 then return end
  redis.call('DEL', Q)
  local owner, longest = key_owner(), 0
  for _, entry in ipairs(came) do
    local id, expires, rest = string.match(entry, '^(' .. string.rep('%x', 32) .. ')(%d+)( %- %d+ x %d+ %d+ %S+ %S+ .*)$')
    local is_new = id and owner ~= id and redis.call('HEXISTS', S, id) == 0
    if is_new and tonumber(expires) > now and not buried(id) then
      local stored = '0' .. rest
      redis.call('ZADD', W, redis.call('HINCRBY', S, 'n', 1), id)
      redis.call('ZADD', E, expires, id)
      redis.call('HSET', S, id, stored)
      longest = math.max(longest, tonumber(parse(stored).ttl))
    end
  end
  if longest > 0 then keep(longest, true) end
end

-- Ends what has expired.
local function purge()
  local expired = redis.call('ZRANGEBYSCORE', E, '-inf', now)
  for _, id in ipairs(expired) do
    local stored = redis.call('HGET', S, id)
    forget(id, stored and parse(stored))
  end
  if #expired > 0 then tidy() end
end

-- A clock that was set back makes what was taken before outlive its TTL by as much. Nothing stands for
-- longer than its TTL from now.
local function cap()
  local record = holder()
  if record and redis.call('PTTL', K) > tonumber(record.ttl) then key_keep(record.ttl) end
  local last = redis.call('ZREVRANGE', E, 0, 0, 'WITHSCORES')
  if not last[1] then return end
  local stored = redis.call('HGET', S, last[1])
  if stored and tonumber(last[2]) <= now + tonumber(parse(stored).ttl) then return end
  for _, id in ipairs(redis.call('ZRANGE', E, 0, -1)) do
    local one = redis.call('HGET', S, id)
    local latest = now + (one and tonumber(parse(one).ttl) or 0)
    if tonumber(redis.call('ZSCORE', E, id)) > latest then redis.call('ZADD', E, latest, id) end
  end
end

local function free_slot(of)
  for slot = 0, of - 1 do
    if redis.call('HEXISTS', S, 's' .. slot) == 0 then return tostring(slot) end
  end
end

-- Whether a claim may come in, and into which slot.
local function admits(mode, of)
  local owner = key_owner()
  if owner and not is_marker(owner) then return false end
  local count = insiders()
  if count == 0 then
    if owner then key_free() end
    owner = nil
  elseif not owner then
    -- Somebody took the marker away while they are still inside.
    owner = redis.call('HGET', S, 's') or SHARED
  end
  if mode == 'x' then return not owner and count == 0, '-' end
  if mode == 's' then return owner ~= SLOTS, '-' end
  if owner == SHARED or count >= of then return false end
  local slot = free_slot(of)
  return slot ~= nil, slot
end

-- Lets a claim in that may come in, for as long as it stands.
local function let_in(id, record, slot, token, ms)
  record.token, record.slot, record.since = token, slot, tostring(now)
  if record.mode == 'x' then
    redis.call('HDEL', S, id)
    redis.call('ZREM', W, id)
    redis.call('ZREM', E, id)
    key_take(id, format(record), ms)
    return
  end
  local marker = record.mode == 's' and SHARED or SLOTS
  redis.call('HSET', S, id, format(record), 's', marker)
  if slot ~= '-' then redis.call('HSET', S, 's' .. slot, id) end
  redis.call('ZREM', W, id)
  redis.call('ZADD', E, now + ms, id)
  key_share(marker, math.max(ms, redis.call('PTTL', K)))
  keep(ms, true)
end

-- Lets in whoever is next, in the order of arrival. Returns whether one that can be reached has to
-- go on waiting: nobody may overtake it. Who cannot be told is passed over, and keeps its place.
local function promote(asker)
  local at, unused, deaf = 0, nil, {}
  while true do
    local id = redis.call('ZRANGE', W, at, at)[1]
    if not id then return false end
    local record = member(id)
    if not record then
      forget(id)
    else
      local may, slot = admits(record.mode, record.of)
      if not may then return true end
      local ms = math.max(1, tonumber(redis.call('ZSCORE', E, id)) - now)
      local token = record.floor == '-' and unused or next_token(record.floor)
      local told = id == asker or (not deaf[record.client]
        and redis.call('PUBLISH', 'palisade:wake:' .. record.client, 'G ' .. id .. ' ' .. token .. ' ' .. slot))
      -- A Cluster counts only those who listen at this very node.
      if SINGLE and (told == 0 or told == false) then
        at, unused, deaf[record.client] = at + 1, record.floor == '-' and token or unused, true
      else
        unused = nil
        let_in(id, record, slot, token, ms)
      end
    end
  end
end

-- Passes a lock on that was held alone until now, and is not free in between. The usual case of `promote`,
-- which does the rest.
local function hand_over()
  local id = redis.call('ZRANGE', W, 0, 0)[1]
  local stored = id and redis.call('HGET', S, id)
  local expires = stored and tonumber(redis.call('ZSCORE', E, id))
  local record = expires and expires > now and parse(stored)
  if record and record.mode == 'x' then
    local token = next_token(record.floor)
    local told = redis.call('PUBLISH', 'palisade:wake:' .. record.client, 'G ' .. id .. ' ' .. token .. ' -')
    if told > 0 or not SINGLE then return let_in(id, record, '-', token, expires - now) end
  end
  key_free()
  if id then
    purge()
    promote()
  end
end

-- All claims, those inside first, each with its record and what remains of it; or only those inside.
local function view(only_inside)
  local owner, stored = key_read()
  local seen = {}
  if stored then
    seen[1] = { owner, stored, redis.call('PTTL', K), 1 }
  elseif owner and not is_marker(owner) then
    seen[1] = { string.sub(redis.sha1hex(owner), 1, 32), '', redis.call('PTTL', K), 1, owner }
  end
  -- Whoever holds alone is all there is inside.
  if only_inside and seen[1] then return seen end
  local waiting = {}
  for rank, waiter in ipairs(redis.call('ZRANGE', W, 0, -1)) do waiting[waiter] = rank end
  local inside, line = {}, {}
  local all = redis.call('ZRANGE', E, 0, -1, 'WITHSCORES')
  for at = 1, #all, 2 do
    local one = redis.call('HGET', S, all[at])
    if one then
      local entry = { all[at], one, tonumber(all[at + 1]) - now, waiting[all[at]] and 0 or 1 }
      table.insert(waiting[all[at]] and line or inside, entry)
    end
  end
  table.sort(inside, function(a, b) return less(parse(a[2]).token, parse(b[2]).token) end)
  table.sort(line, function(a, b) return waiting[a[1]] < waiting[b[1]] end)
  for _, entry in ipairs(inside) do table.insert(seen, entry) end
  if only_inside then return seen end
  for _, entry in ipairs(line) do table.insert(seen, entry) end
  return seen
end
