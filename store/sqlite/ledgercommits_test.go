package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/sqlite"
)

// locked takes the lock of whoever writes, as another process would, until it is let go.
func locked(t *testing.T, path string) (letGo func()) {
	t.Helper()
	conn, err := raw(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(statement string) {
		if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Error(err)
		}
	}
	run("BEGIN IMMEDIATE")
	once := sync.OnceFunc(func() {
		run("ROLLBACK")
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(once)
	return once
}

// waits until as many writes wait, the one that waits for the lock aside.
func waits(l *sqlite.Ledger, n int) {
	for l.Queued() < n {
		runtime.Gosched()
	}
}

// lockedOut has a ledger that cannot write, and one write that tries to.
func lockedOut(t *testing.T) (l *sqlite.Ledger, path string, first chan error, letGo func()) {
	t.Helper()
	path = newPath(t)
	l = ledgerAt(t, path)
	letGo = locked(t, path)
	first = begins(t.Context(), l, "first")
	for l.Queued() > 0 || !l.Writing() {
		runtime.Gosched()
	}
	return l, path, first, letGo
}

// begins has an operation begun and sends what came of it.
func begins(ctx context.Context, l *sqlite.Ledger, id string) chan error {
	done := make(chan error, 1)
	go func() {
		_, led, err := l.Begin(ctx, aCall(id))
		if err == nil && !led {
			err = fmt.Errorf("%s is not led", id)
		}
		done <- err
	}()
	return done
}

func TestLedgerOneThatFailsTakesNoneWithIt(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	do(t, raw(t, path), `CREATE TRIGGER no BEFORE INSERT ON operations WHEN NEW.id = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END`)
	letGo := locked(t, path)
	const many = 20
	good := []chan error{begins(t.Context(), l, "first")}
	for !l.Writing() || l.Queued() > 0 {
		runtime.Gosched()
	}
	for i := range many {
		good = append(good, begins(t.Context(), l, fmt.Sprint(i)))
		waits(l, i+1)
	}
	bad := begins(t.Context(), l, "bad")
	waits(l, many+1)
	good = append(good, begins(t.Context(), l, "last"))
	waits(l, many+2)
	letGo()
	if err := <-bad; err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("the one that fails: %v", err)
	}
	for i, done := range good {
		if err := <-done; err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	all, err := l.Operations(t.Context(), aCall("").Caller, 0, operation.Cursor{}, 1000)
	if err != nil || len(all) != len(good) {
		t.Errorf("%d operations, want %d: %v", len(all), len(good), err)
	}
}

func TestLedgerWhatIsGivenUpInTimeIsNotDone(t *testing.T) {
	l, _, first, letGo := lockedOut(t)
	ctx, cancel := context.WithCancel(t.Context())
	given := begins(ctx, l, "given up")
	waits(l, 1)
	stays := begins(t.Context(), l, "stays")
	waits(l, 2)
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if err := <-begins(short, l, "too late"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("whose time is over: %v", err)
	}
	letGo()
	if err := errors.Join(<-first, <-stays); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"given up", "too late"} {
		if _, err := l.Operation(t.Context(), aCall(id).Key); !errors.Is(err, operation.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestLedgerReadsWhileItCannotWrite(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	if err := <-begins(t.Context(), l, "a"); err != nil {
		t.Fatal(err)
	}
	locked(t, path)
	if _, err := l.Operation(t.Context(), aCall("a").Key); err != nil {
		t.Error(err)
	}
	if all, err := l.Operations(t.Context(), aCall("a").Caller, operation.StateRunning, operation.Cursor{}, 9); err != nil || len(all) != 1 {
		t.Errorf("%d, %v", len(all), err)
	}
}

func TestLedgerOverloaded(t *testing.T) {
	l, _, first, letGo := lockedOut(t)
	const most = 4096
	ctx, cancel := context.WithCancel(t.Context())
	var waiting []chan error
	for i := range most {
		waiting = append(waiting, begins(ctx, l, fmt.Sprint(i)))
	}
	waits(l, most)
	for range 3 {
		if err := <-begins(t.Context(), l, "one more"); !errors.Is(err, sqlite.ErrOverloaded) {
			t.Errorf("one more: %v", err)
		}
	}
	cancel()
	for _, done := range waiting {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	letGo()
	if err := <-first; err != nil {
		t.Error(err)
	}
	for l.Queued() > 0 { // those that were given up
		runtime.Gosched()
	}
	if err := <-begins(t.Context(), l, "afterwards"); err != nil {
		t.Error(err)
	}
	if all, err := l.Operations(t.Context(), aCall("").Caller, 0, operation.Cursor{}, 100); err != nil || len(all) != 2 {
		t.Errorf("%d operations, want 2: %v", len(all), err)
	}
}

func TestLedgerOverloadedByBytes(t *testing.T) {
	l, _, first, letGo := lockedOut(t)
	l.MostWaiting(1 << 20)
	large := func(size int) error {
		r := aCall(fmt.Sprint(size))
		r.Request = make([]byte, size)
		_, _, err := l.Begin(t.Context(), r)
		return err
	}
	done := make(chan error, 1)
	go func() { done <- large(1 << 21) }() // one alone may be as large as it likes
	waits(l, 1)
	for _, size := range []int{1, 1 << 19} {
		if err := large(size); !errors.Is(err, sqlite.ErrOverloaded) {
			t.Errorf("%d bytes more: %v", size, err)
		}
	}
	letGo()
	if err := errors.Join(<-first, <-done, large(1), large(1<<19)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestLedgerClosedWhileWritesWait(t *testing.T) {
	l, path, first, letGo := lockedOut(t)
	second := begins(t.Context(), l, "second")
	waits(l, 1)
	closedLedger(t, l)
	if !l.Ended() {
		t.Error("closed, and still writing")
	}
	for _, done := range []chan error{first, second} {
		if err := <-done; err == nil || !strings.Contains(err.Error(), path+": closed") {
			t.Errorf("got %v", err)
		}
	}
	letGo()
	l = ledgerAt(t, path)
	for _, id := range []string{"first", "second"} {
		if _, err := l.Operation(t.Context(), aCall(id).Key); !errors.Is(err, operation.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestLedgerLockedByAnotherProcess(t *testing.T) {
	path := newPath(t)
	l, err := sqlite.OpenLedgerWaiting(t.Context(), path, keysOf(t, keyA), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closedLedger(t, l) })
	lead, _, err := l.Begin(t.Context(), aCall("before"))
	if err != nil {
		t.Fatal(err)
	}
	other := start(t, "lock", path, nil)
	other.says(t, "locked")
	for range 2 {
		_, led, err := l.Begin(t.Context(), aCall("while"))
		if led || !errors.Is(err, sqlite.ErrLocked) {
			t.Errorf("Begin: %v, %v", led, err)
		}
		sentence(t, err, sqlite.ErrLocked, "ledger "+path, "end the process that holds it")
		if err := l.Write(t.Context(), over(lead, 10)); !errors.Is(err, sqlite.ErrLocked) {
			t.Errorf("Write: %v", err)
		}
	}
	if said := other.over(t); said != "" {
		t.Error(said)
	}
	if err := errors.Join(l.Write(t.Context(), over(lead, 10)), <-begins(t.Context(), l, "while")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestLedgerFullFile(t *testing.T) {
	l := ledgerAt(t, newPath(t))
	lead, _, err := l.Begin(t.Context(), aCall("before"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Limit(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.Write(t.Context(), over(lead, 1<<16)); !errors.Is(err, sqlite.ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		if r, err := l.Operation(t.Context(), lead.Key); err != nil || r.State != operation.StateRunning {
			t.Errorf("%v, %v", r.State, err)
		}
		// What needs no room goes on.
		if r, led, err := l.Begin(t.Context(), aCall("before")); err != nil || led || r.Epoch != 1 {
			t.Errorf("what stands: %v, %v", led, err)
		}
	}
	if err := l.Limit(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(t.Context(), over(lead, 1<<16)); err != nil {
		t.Errorf("after room was made: %v", err)
	}
}

// Room that was freed is used again.
func TestLedgerDoesNotGrowWithAllThatEverWas(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	sizes := []int64{}
	for round := range 6 {
		for i := range 20 {
			r, _, err := l.Begin(t.Context(), aCall(fmt.Sprintf("%d of %d", i, round)))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Write(t.Context(), over(r, 50_000)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Prune(t.Context(), time.Now().Add(24*time.Hour), 0); err != nil {
			t.Fatal(err)
		}
		var pages int64
		if err := raw(t, path).QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		sizes = append(sizes, pages)
	}
	if sizes[5] > sizes[0]+2 {
		t.Errorf("it grows: %d pages", sizes)
	}
}

func TestLedgerKeepsNoSecretInTheClear(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	start := aCall("a")
	start.Request = []byte("request: HUSH-HUSH")
	r, _, err := l.Begin(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	next := over(r, 0)
	next.Details, next.Body = []byte("details: HUSH-HUSH"), []byte(strings.Repeat("body: HUSH-HUSH", 1000))
	if err := l.Write(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		content, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if suffix == "-wal" && !strings.Contains(string(content), "spiffe://example.com/orders") {
			t.Error("does the test look where it is written?")
		}
		if strings.Contains(string(content), "HUSH") {
			t.Errorf("%s has it in the clear", path+suffix)
		}
		if info, err := os.Stat(path + suffix); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v (%v)", path+suffix, info.Mode(), err)
		}
	}
}

func TestLedgerKeys(t *testing.T) {
	path := newPath(t)
	open := func(keys string) (*sqlite.Ledger, error) {
		return sqlite.OpenLedger(t.Context(), path, keysOf(t, keys))
	}
	l := ledgerAt(t, path)
	name, since := l.Identity()
	if err := <-begins(t.Context(), l, "old"); err != nil {
		t.Fatal(err)
	}
	closedLedger(t, l)

	_, err := open(keyB)
	sentence(t, err, sqlite.ErrSealed, "ledger "+path, "put the key back")
	if !errors.Is(err, sqlite.ErrSealed) {
		t.Errorf("%v: not ErrSealed", err)
	}

	if l, err = open(keyB + keyA); err != nil {
		t.Fatal(err)
	}
	if n, s := l.Identity(); n != name || !s.Equal(since) || !strings.HasPrefix(n, "sqlite:") || len(n) != len("sqlite:")+16 {
		t.Errorf("%s since %v, before it was %s since %v", n, s, name, since)
	}
	if _, err := l.Operation(t.Context(), aCall("old").Key); err != nil {
		t.Error(err)
	}
	if err := <-begins(t.Context(), l, "new"); err != nil {
		t.Error(err)
	}
	closedLedger(t, l)

	if l, err = open(keyB); err != nil { // the old key was dropped
		t.Fatal(err)
	}
	defer closedLedger(t, l)
	if _, err := l.Operation(t.Context(), aCall("new").Key); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"Operation": func() error { _, err := l.Operation(t.Context(), aCall("old").Key); return err }(),
		"Begin":     func() error { _, _, err := l.Begin(t.Context(), aCall("old")); return err }(),
		"Operations": func() error {
			_, err := l.Operations(t.Context(), aCall("old").Caller, 0, operation.Cursor{}, 9)
			return err
		}(),
	} {
		if !errors.Is(err, sqlite.ErrDamaged) || !strings.Contains(err.Error(), `operation "old"`) || !strings.Contains(err.Error(), "unknown key") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestLedgerAndStoreAreNotTakenForEachOther(t *testing.T) {
	path, other := newPath(t), newPath(t)
	closedLedger(t, ledgerAt(t, path))
	closed(t, at(t, other))
	_, err := sqlite.Open(t.Context(), path)
	sentence(t, err, sqlite.ErrDamaged, path, "not a store of Sallyport")
	_, err = sqlite.OpenLedger(t.Context(), other, keysOf(t, keyA))
	sentence(t, err, sqlite.ErrDamaged, other, "not a ledger of Sallyport")
}

func TestLedgerSettings(t *testing.T) {
	writer, _, err := ledgerAt(t, newPath(t)).Settings(t.Context(), "journal_mode", "synchronous", "journal_size_limit")
	if err != nil || writer["journal_mode"] != "wal" || writer["synchronous"] != "2" || writer["journal_size_limit"] != "67108864" {
		t.Errorf("%v, %v", writer, err)
	}
}
