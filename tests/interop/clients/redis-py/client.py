"""redis-py's `Lock` as a foreign client; the protocol is in ../README.md."""

import random
import sys
import time

import redis

TTL_SECONDS = 10


def turns(server, key, count, pause_us, name):
    print("ready", flush=True)
    sys.stdin.readline()
    overlaps, max_wait = 0, 0
    for _ in range(count):
        start = time.monotonic_ns()
        # The default of 100 ms between tries would measure nothing but that sleep.
        lock = server.lock(key, timeout=TTL_SECONDS, sleep=0.002)
        if not lock.acquire():
            raise SystemExit("redis-py gave up waiting")
        max_wait = max(max_wait, time.monotonic_ns() - start)
        if not server.set("inside", name, nx=True):
            overlaps += 1
        before = int(server.get("counter") or 0)
        time.sleep(0)
        server.set("counter", before + 1)
        server.rpush("order", name)
        server.delete("inside")
        lock.release()
        time.sleep(random.uniform(0, 2 * pause_us) / 1e6)
    print(f"turns={count} overlaps={overlaps} max_wait_us={max_wait // 1000}", flush=True)


def hold(server, key, ttl_ms):
    """Takes the lock, and gives it back when told to. Without a TTL unless one is given: redis-py's default."""
    lock = server.lock(key, timeout=int(ttl_ms) / 1000) if ttl_ms else server.lock(key)
    if not lock.acquire(blocking=False):
        raise SystemExit("the lock is held already")
    print("ready", flush=True)
    sys.stdin.readline()
    # The clock is the same for all processes of one machine.
    released = time.monotonic_ns()
    lock.release()
    print(f"released_ns={released}", flush=True)


def attempt(server, key):
    """Asks once, without waiting."""
    taken = server.lock(key, timeout=TTL_SECONDS).acquire(blocking=False)
    print("taken" if taken else "refused", flush=True)


def main():
    port, key, verb = sys.argv[1:4]
    server = redis.Redis(host="127.0.0.1", port=int(port), decode_responses=True)
    match verb, sys.argv[4:]:
        case "turns", [count, pause_us, name]:
            turns(server, key, int(count), int(pause_us), name)
        case "hold", rest:
            hold(server, key, rest[0] if rest else None)
        case "attempt", []:
            attempt(server, key)
        case _:
            raise SystemExit(__doc__)


main()
