-- Things that are each given once. KEYS: 1 who has a seat, 2 requests for seats ("state at keep"), 3 ended ones by when they did.
-- ARGV: 1 the verb, 2 the seat or a number, 3 the request, then what the verb takes. Times are the server's, in milliseconds.
-- A server that evicts may have any of the keys without the others: who has a seat is in 2 as well, as a request without an id.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local verb, seat, request = ARGV[1], ARGV[2], ARGV[3]
local HELD, CONFIRMED, CANCELLED, EXPIRED = 0, 1, 2, 3
local FULL, NONE, OTHER_KEEP = -1, -2, -5

-- The length comes first, so that no two pairs look alike.
local function field(id)
    return #seat .. ':' .. seat .. id
end

local function parsed(text)
    local state, at, keep = string.match(text, '^(%d) (%d+) (%d+)$')
    return {state = tonumber(state), at = tonumber(at), keep = tonumber(keep)}
end

local function store(id, it)
    local text = it.state .. ' ' .. string.format('%.0f', it.at) .. ' ' .. string.format('%.0f', it.keep)
    redis.call('HSET', KEYS[2], field(id), text)
end

local function give_back(id, it, state)
    it.state, it.at = state, now
    store(id, it)
    redis.call('ZADD', KEYS[3], now, field(id))
    if redis.call('HGET', KEYS[1], seat) == id then redis.call('HDEL', KEYS[1], seat) end
    if redis.call('HGET', KEYS[2], field('')) == id then redis.call('HDEL', KEYS[2], field('')) end
end

-- How a request stands; a hold that is over is ended.
local function settled(id)
    local text = redis.call('HGET', KEYS[2], field(id))
    if not text then return nil end
    local it = parsed(text)
    if it.state == HELD and it.at <= now then give_back(id, it, EXPIRED) end
    return it
end

if verb == 'book' then
    local state, keep = tonumber(ARGV[4]), tonumber(ARGV[5])
    local before = settled(request)
    if before and before.keep ~= keep then return {OTHER_KEEP, before.keep} end
    if before then return {before.state, 1} end
    local who = redis.call('HGET', KEYS[1], seat) or redis.call('HGET', KEYS[2], field(''))
    if who then
        local theirs = settled(who)
        -- Of whom nothing is known may have it for good.
        if not theirs or theirs.state == HELD or theirs.state == CONFIRMED then
            redis.call('HSET', KEYS[1], seat, who)
            return {FULL, 0}
        end
    end
    redis.call('HSET', KEYS[1], seat, request)
    redis.call('HSET', KEYS[2], field(''), request)
    store(request, {state = state, at = now + keep, keep = keep})
    return {state, 0}
elseif verb == 'confirm' then
    local it = settled(request)
    if it and it.state == HELD then
        it.state, it.at = CONFIRMED, now
        store(request, it)
    end
    return {it and it.state or NONE, 0}
elseif verb == 'cancel' then
    local it = settled(request)
    if it and it.state == HELD then give_back(request, it, CANCELLED) end
    return {it and it.state or NONE, 0}
elseif verb == 'forget' then
    local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - tonumber(seat), 'LIMIT', 0, 500)
    local forgotten = 0
    for _, name in ipairs(old) do
        local text = redis.call('HGET', KEYS[2], name)
        local state = text and parsed(text).state
        if state == CANCELLED or state == EXPIRED then
            forgotten = forgotten + redis.call('HDEL', KEYS[2], name)
        end
        redis.call('ZREM', KEYS[3], name)
    end
    return {forgotten, 0}
end
return redis.error_reply('ERR palisade: no such verb ' .. verb)
