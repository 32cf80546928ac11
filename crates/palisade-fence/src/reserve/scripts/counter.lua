-- A bounded counter. KEYS: 1 capacity and taken, 2 requests ("state amount at keep"), 3 holds by when they end, 4 ended ones by when
-- they did. ARGV: 1 the verb, 2 the request or a number, then what the verb takes. Times are the server's, in milliseconds.
-- A server that evicts may have any of the keys without the others: nothing here relies on two of them agreeing.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local verb, request = ARGV[1], ARGV[2]
local HELD, CONFIRMED, CANCELLED, EXPIRED = 0, 1, 2, 3
local FULL, NONE, UNSET, OTHER_AMOUNT, OTHER_KEEP = -1, -2, -3, -4, -5

local function whole(number)
    return string.format('%.0f', number)
end

local function parsed(text)
    local state, amount, at, keep = string.match(text, '^(%d) (%d+) (%d+) (%d+)$')
    return {state = tonumber(state), amount = tonumber(amount), at = tonumber(at), keep = tonumber(keep)}
end

local function stored(id)
    local text = redis.call('HGET', KEYS[2], id)
    return text and parsed(text) or nil
end

local function store(id, it)
    local parts = {it.state, whole(it.amount), whole(it.at), whole(it.keep)}
    redis.call('HSET', KEYS[2], id, table.concat(parts, ' '))
end

local function stock()
    local both = redis.call('HMGET', KEYS[1], 'capacity', 'taken')
    return tonumber(both[1]), tonumber(both[2]) or 0
end

local function give_back(id, it, state)
    it.state, it.at = state, now
    store(id, it)
    redis.call('ZREM', KEYS[3], id)
    redis.call('ZADD', KEYS[4], now, id)
    local _, taken = stock()
    redis.call('HSET', KEYS[1], 'taken', whole(math.max(taken - it.amount, 0)))
end

-- How a request stands; a hold that is over is ended.
local function settled(id)
    local it = stored(id)
    if it and it.state == HELD and it.at <= now then give_back(id, it, EXPIRED) end
    return it
end

-- Ends some holds that are over. Returns what came back, and how many it looked at.
local function expire()
    local over = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 500)
    local back = 0
    for _, id in ipairs(over) do
        local it = stored(id)
        if not it or it.state ~= HELD then
            redis.call('ZREM', KEYS[3], id)
        elseif it.at > now then
            redis.call('ZADD', KEYS[3], whole(it.at), id)
        else
            back = back + it.amount
            give_back(id, it, EXPIRED)
        end
    end
    return back, #over
end

-- What requests have, by themselves.
local function recount()
    local taken = 0
    for _, text in ipairs(redis.call('HVALS', KEYS[2])) do
        local it = parsed(text)
        if it.state == HELD or it.state == CONFIRMED then taken = taken + it.amount end
    end
    return taken
end

if verb == 'capacity' then
    local capacity, taken = stock()
    if not capacity then taken = recount() end
    if taken > tonumber(request) then return {0, 0} end
    redis.call('HSET', KEYS[1], 'capacity', request, 'taken', whole(taken))
    return {1, 0}
elseif verb == 'stock' then
    local capacity, taken = stock()
    if not capacity then return {NONE, 0} end
    return {capacity, taken}
elseif verb == 'reserve' then
    local amount, state, keep = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
    local before = settled(request)
    if before and before.amount ~= amount then return {OTHER_AMOUNT, before.amount} end
    if before and before.keep ~= keep then return {OTHER_KEEP, before.keep} end
    if before then return {before.state, 1} end
    local capacity, taken = stock()
    if not capacity then return {UNSET, 0} end
    while taken + amount > capacity do
        local back, seen = expire()
        if seen == 0 then break end
        taken = taken - back
    end
    if taken + amount > capacity then return {FULL, math.max(capacity - taken, 0)} end
    redis.call('HINCRBY', KEYS[1], 'taken', whole(amount))
    store(request, {state = state, amount = amount, at = now + keep, keep = keep})
    if state == HELD then redis.call('ZADD', KEYS[3], whole(now + keep), request) end
    return {state, 0}
elseif verb == 'confirm' then
    local it = settled(request)
    if it and it.state == HELD then
        it.state, it.at = CONFIRMED, now
        store(request, it)
        redis.call('ZREM', KEYS[3], request)
    end
    return {it and it.state or NONE, 0}
elseif verb == 'cancel' then
    local it = settled(request)
    if it and it.state == HELD then give_back(request, it, CANCELLED) end
    return {it and it.state or NONE, 0}
elseif verb == 'expire' then
    return {(expire()), 0}
elseif verb == 'forget' then
    local old = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now - tonumber(request), 'LIMIT', 0, 500)
    local forgotten = 0
    for _, id in ipairs(old) do
        local it = stored(id)
        if it and (it.state == CANCELLED or it.state == EXPIRED) then
            forgotten = forgotten + redis.call('HDEL', KEYS[2], id)
        end
        redis.call('ZREM', KEYS[4], id)
    end
    return {forgotten, 0}
end
return redis.error_reply('ERR palisade: no such verb ' .. verb)
