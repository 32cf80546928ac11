-- ARGV: a name for the tokens counted here, unless there is one; the run of this server; how long it runs.
-- Answers with the name that counts, the run in which what is stored here began, and for how many ms it
-- has been known that this run decides: a replica may run for long before it is promoted.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local stored = redis.call('GET', KEYS[1])
local source, first, last, since
if stored then
  source, first, last, since = string.match(stored, '^(%S+) (%S+) (%S+) (%d+)$')
  if not source then return { stored } end
else
  source, first, last, since = ARGV[1], ARGV[2], ARGV[2], now - tonumber(ARGV[3])
end
if last ~= ARGV[2] then last, since = ARGV[2], now end
local known = table.concat({ source, first, last, string.format('%d', since) }, ' ')
if known ~= stored then redis.call('SET', KEYS[1], known) end
return { source, first, string.format('%d', math.max(0, now - since)) }
