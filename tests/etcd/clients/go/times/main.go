// Measures etcd's own locks, for `palisade bench` to stand beside: `ENDPOINT mutex|rpc pairs NAME COUNT` prints how
// many microseconds each lock and unlock took, `ENDPOINT mutex|rpc crowd NAME SIZE TURNS` how many locks per second a
// crowd has that wants the same one.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
)

const ttl = 60

// A lock of one client: take it, give it back.
type locker interface {
	lock(context.Context) error
	unlock(context.Context) error
}

func main() {
	if len(os.Args) < 6 {
		fail(fmt.Errorf("usage: ENDPOINT mutex|rpc pairs NAME COUNT, or crowd NAME SIZE TURNS"))
	}
	endpoint, kind, name := os.Args[1], os.Args[2], os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	check(err)
	switch {
	case os.Args[3] == "pairs":
		pairs(connect(endpoint, kind, name), count)
	case os.Args[3] == "crowd" && len(os.Args) == 7:
		turns, err := strconv.Atoi(os.Args[6])
		check(err)
		crowd(endpoint, kind, name, count, turns)
	default:
		fail(fmt.Errorf("there is no %q", os.Args[3]))
	}
}

func pairs(lock locker, count int) {
	// The first ones are not as the others.
	const warm = 20
	for turn := 0; turn < warm+count; turn++ {
		began := time.Now()
		once(lock)
		if turn >= warm {
			fmt.Printf("%.1f\n", float64(time.Since(began).Nanoseconds())/1e3)
		}
	}
}

// Each has a connection and a session of its own, as processes would.
func crowd(endpoint, kind, name string, size, turns int) {
	locks := make([]locker, size)
	for place := range locks {
		locks[place] = connect(endpoint, kind, name)
		once(locks[place])
	}
	var all sync.WaitGroup
	began := time.Now()
	for _, lock := range locks {
		all.Add(1)
		go func() {
			defer all.Done()
			for turn := 0; turn < turns; turn++ {
				once(lock)
			}
		}()
	}
	all.Wait()
	fmt.Printf("%.3f\n", float64(size*turns)/time.Since(began).Seconds())
}

func once(lock locker) {
	ctx := context.Background()
	check(lock.lock(ctx))
	check(lock.unlock(ctx))
}

func connect(endpoint, kind, name string) locker {
	config := clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second}
	client, err := clientv3.New(config)
	check(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	check(err)
	switch kind {
	case "mutex":
		return &mutex{concurrency.NewMutex(session, name)}
	case "rpc":
		return &rpc{client.ActiveConnection(), name, session.Lease(), nil}
	}
	fail(fmt.Errorf("there is no %q", kind))
	return nil
}

type mutex struct{ of *concurrency.Mutex }

func (m *mutex) lock(ctx context.Context) error   { return m.of.Lock(ctx) }
func (m *mutex) unlock(ctx context.Context) error { return m.of.Unlock(ctx) }

// The lock RPC. Its messages have two fields each and are written by hand: their package comes with the whole
// server.
type rpc struct {
	over  *grpc.ClientConn
	name  string
	lease clientv3.LeaseID
	key   []byte
}

func (r *rpc) lock(ctx context.Context) error {
	request := field(nil, 1, []byte(r.name))
	request = binary.AppendUvarint(append(request, 2<<3), uint64(r.lease))
	var answer []byte
	if err := r.over.Invoke(ctx, "/v3lockpb.Lock/Lock", request, &answer, grpc.ForceCodec(asIs{})); err != nil {
		return err
	}
	r.key = bytesOf(answer, 2)
	return nil
}

func (r *rpc) unlock(ctx context.Context) error {
	var answer []byte
	request := field(nil, 1, r.key)
	return r.over.Invoke(ctx, "/v3lockpb.Lock/Unlock", request, &answer, grpc.ForceCodec(asIs{}))
}

// A codec for messages that are bytes already.
type asIs struct{}

func (asIs) Name() string                        { return "proto" }
func (asIs) Marshal(message any) ([]byte, error) { return message.([]byte), nil }
func (asIs) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func field(message []byte, number uint64, value []byte) []byte {
	message = binary.AppendUvarint(message, number<<3|2)
	message = binary.AppendUvarint(message, uint64(len(value)))
	return append(message, value...)
}

// The bytes of a field; only fields of bytes come before it in the answers here.
func bytesOf(message []byte, wanted uint64) []byte {
	for len(message) > 0 {
		tag, head := binary.Uvarint(message)
		length, more := binary.Uvarint(message[head:])
		start := head + more
		value := message[start : start+int(length)]
		if tag>>3 == wanted {
			return value
		}
		message = message[start+int(length):]
	}
	fail(fmt.Errorf("the answer names no key"))
	return nil
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
