// Contends for one etcd lock with Go's own clients: `ENDPOINT mutex|election NAME TURNS FOLDER`.
//
// Each turn makes FOLDER/inside, which must not be there, reads FOLDER/count, writes it back one greater,
// and removes FOLDER/inside: so two at once are noticed, and so is a lost turn.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	if len(os.Args) != 6 {
		fail(fmt.Errorf("usage: ENDPOINT mutex|election NAME TURNS FOLDER"))
	}
	turns, err := strconv.Atoi(os.Args[4])
	check(err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 5 * time.Second})
	check(err)
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	check(err)
	defer session.Close()
	enter, leave := lock(session, os.Args[2], os.Args[3])
	for turn := 0; turn < turns; turn++ {
		check(enter())
		check(count(os.Args[5]))
		check(leave())
	}
	fmt.Println("done")
}

func lock(session *concurrency.Session, kind, name string) (func() error, func() error) {
	ctx := context.Background()
	switch kind {
	case "mutex":
		mutex := concurrency.NewMutex(session, name)
		return func() error { return mutex.Lock(ctx) }, func() error { return mutex.Unlock(ctx) }
	case "election":
		election := concurrency.NewElection(session, name)
		return func() error { return election.Campaign(ctx, "go") }, func() error { return election.Resign(ctx) }
	}
	fail(fmt.Errorf("there is no %q", kind))
	return nil, nil
}

func count(folder string) error {
	inside := filepath.Join(folder, "inside")
	file, err := os.OpenFile(inside, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("two are inside at once: %w", err)
	}
	defer file.Close()
	path := filepath.Join(folder, "count")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(number+1)), 0o600); err != nil {
		return err
	}
	return os.Remove(inside)
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
