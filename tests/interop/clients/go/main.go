// Command main is redsync or bsm/redislock as a foreign client; the protocol is in ../README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const ttl = 10 * time.Second

// release gives a taken lock back.
type release func(context.Context) error

// take waits for the lock and takes it.
type take func(context.Context, string) (release, error)

func withRedsync(server *redis.Client) take {
	sync := redsync.New(goredis.NewPool(server))
	return func(ctx context.Context, key string) (release, error) {
		// The defaults, 32 tries 50 to 250 ms apart, would give up in the crowd.
		mutex := sync.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1_000_000),
			redsync.WithRetryDelayFunc(func(int) time.Duration { return time.Duration(1+rand.Intn(3)) * time.Millisecond }))
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			ok, err := mutex.UnlockContext(ctx)
			if err == nil && !ok {
				err = errors.New("the lock was gone")
			}
			return err
		}, nil
	}
}

func withRedislock(server *redis.Client) take {
	locker := redislock.New(server)
	return func(ctx context.Context, key string) (release, error) {
		// It waits no longer than the TTL, or than the context's deadline where that has one.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		lock, err := locker.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(2 * time.Millisecond)})
		if err != nil {
			return nil, err
		}
		return lock.Release, nil
	}
}

func turns(ctx context.Context, server *redis.Client, take take, key string, count, pauseUs int, name string) error {
	if err := server.Ping(ctx).Err(); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	overlaps, maxWait := 0, time.Duration(0)
	for range count {
		start := time.Now()
		release, err := take(ctx, key)
		if err != nil {
			return err
		}
		maxWait = max(maxWait, time.Since(start))
		alone, err := inside(ctx, server, name)
		if err != nil {
			return err
		}
		if !alone {
			overlaps++
		}
		if err := release(ctx); err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.Intn(2*pauseUs+1)) * time.Microsecond)
	}
	fmt.Printf("turns=%d overlaps=%d max_wait_us=%d\n", count, overlaps, maxWait.Microseconds())
	return nil
}

// inside counts one up in two steps, and tells whether nobody else was inside.
func inside(ctx context.Context, server *redis.Client, name string) (bool, error) {
	alone, err := server.SetNX(ctx, "inside", name, 0).Result()
	if err != nil {
		return false, err
	}
	before, err := server.Get(ctx, "counter").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	runtime.Gosched()
	if err := server.Set(ctx, "counter", before+1, 0).Err(); err != nil {
		return false, err
	}
	if err := server.RPush(ctx, "order", name).Err(); err != nil {
		return false, err
	}
	return alone, server.Del(ctx, "inside").Err()
}

func run(args []string) error {
	if len(args) != 7 || args[3] != "turns" {
		return errors.New("usage: LIBRARY PORT KEY turns COUNT PAUSE_US NAME")
	}
	count, err := strconv.Atoi(args[4])
	if err != nil {
		return err
	}
	pauseUs, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	server := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + args[1]})
	defer server.Close()
	take, known := map[string]func(*redis.Client) take{"redsync": withRedsync, "redislock": withRedislock}[args[0]]
	if !known {
		return fmt.Errorf("there is no %s", args[0])
	}
	return turns(context.Background(), server, take(server), args[2], count, pauseUs, args[6])
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
