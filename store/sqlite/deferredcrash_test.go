package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/seal"
	"github.com/sallyport/sallyport/store/sqlite"
)

// deferForEver submits calls, takes some to their end, eight at a time, and says each step when it was acknowledged.
func deferForEver(ctx context.Context, path string) error {
	keys, err := seal.Parse(keyA)
	if err != nil {
		return err
	}
	l, err := sqlite.OpenLedger(ctx, path, keys)
	if err != nil {
		return err
	}
	d := l.Deferred()
	failed := make(chan error)
	for range 8 {
		go func() {
			for {
				id := fmt.Sprintf("%016x", rand.Uint64())
				r, _, err := d.Submit(ctx, aDeferred(id, anOrigin, time.Now()))
				if err == nil {
					say("submitted " + id)
					err = d.Begin(ctx, r.Seq, 0, r.Seq%2 == 0, time.Now())
				}
				if err == nil && r.Seq%3 > 0 {
					say("begun " + id)
					end, attempt := ended(r)
					if err = d.End(ctx, &end, attempt); err == nil {
						say("ended " + id)
					}
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

func TestDeferredKilledBetweenAcknowledgements(t *testing.T) {
	path := newPath(t)
	acknowledged := map[string]string{}
	for round := range 4 {
		p := start(t, "deferred", path, nil)
		var said []string
		for range 50*(round+1) + rand.IntN(50) {
			if !p.lines.Scan() {
				t.Fatal("it ended by itself")
			}
			said = append(said, p.lines.Text())
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for p.lines.Scan() { // what it said until it was killed counts too
			said = append(said, p.lines.Text())
		}
		_ = p.cmd.Wait()
		for _, line := range said {
			word, id, _ := strings.Cut(line, " ")
			acknowledged[id] = word
		}
		l := ledgerAt(t, path)
		d := l.Deferred()
		left, err := d.Recover(t.Context(), time.Now())
		if err != nil || left == 0 {
			t.Errorf("%d were under way: %v", left, err)
		}
		for id, word := range acknowledged {
			r, err := d.Find(t.Context(), aDeferred("", "", time.Now()).Caller, id)
			switch {
			case err != nil:
				t.Errorf("%s was %s and is lost: %v", id, word, err)
			case r.State == deferred.StateSending:
				t.Errorf("%s is sending after it was recovered", id)
			case word == "ended" && (r.State != deferred.StateCompleted || len(r.Attempts) != 1 || r.Response == nil):
				t.Errorf("%s was ended: %+v", id, r)
			case word == "begun" && r.State == deferred.StatePending:
				t.Errorf("%s was begun and is pending", id)
			}
			if op, err := l.Operation(t.Context(), aDeferredKey(id)); err != nil || op.Deferred != id {
				t.Errorf("%s: its operation is %+v, %v", id, op, err)
			}
		}
		counts, err := d.Counts(t.Context(), "")
		all, err2 := d.List(t.Context(), &deferred.Filter{}, 0, 1<<20)
		want := map[deferred.State]uint64{}
		for _, r := range all {
			want[r.State]++
		}
		if err := errors.Join(err, err2); err != nil || fmt.Sprint(counts) != fmt.Sprint(want) {
			t.Errorf("counts %v, there are %v: %v", counts, want, err)
		}
		closedLedger(t, l)
	}
	if len(acknowledged) < 100 {
		t.Errorf("only %d calls: does it do anything?", len(acknowledged))
	}
}

func TestLedgerRefusesASecondBroker(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	begin := time.Now()
	_, err := sqlite.OpenLedger(t.Context(), path, keysOf(t, keyA))
	sentence(t, err, sqlite.ErrLocked, path, "another broker uses it; end the process")
	if took := time.Since(begin); took > time.Second || !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("refused after %v: %v", took, err)
	}
	if out := start(t, "open ledger", path, nil).over(t); !strings.Contains(out, "another broker uses it") || strings.Count(out, "\n") != 1 {
		t.Errorf("another process says %q", out)
	}
	closedLedger(t, l)
	closedLedger(t, ledgerAt(t, path))
	// A process that was killed holds nothing.
	p := start(t, "deferred", path, nil)
	if !p.lines.Scan() {
		t.Fatal("it ended by itself")
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	ledgerAt(t, path)
}

// A call that is damaged is told of, and keeps nothing else from its way.
func TestDeferredKeepsWhatIsDamaged(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	d := l.Deferred()
	for _, id := range []string{"a", "row", "request", "z"} {
		if _, _, err := d.Submit(t.Context(), aDeferred(id, anOrigin, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	do(t, raw(t, path), "UPDATE calls SET epoch = 7 WHERE id = 'row'",
		"UPDATE requests SET request = (SELECT request FROM requests WHERE seq = 1) WHERE seq = 3")
	caller := aDeferred("", "", time.Now()).Caller
	for _, id := range []string{"row", "request"} {
		if _, err := d.Find(t.Context(), caller, id); !errors.Is(err, sqlite.ErrDamaged) || !strings.Contains(err.Error(), `deferred call "`+id+`"`) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := d.Begin(t.Context(), 2, 7, true, time.Now()); !errors.Is(err, sqlite.ErrDamaged) {
		t.Errorf("begin of a damaged one: %v", err)
	}
	due, _, err := d.Due(t.Context(), time.Now(), 9, nil, nil)
	if err != nil || len(due) != 2 || due[0].ID != "a" || due[1].ID != "z" {
		t.Errorf("%d are due, %v; want the 2 others", len(due), err)
	}
	now := time.Now()
	if due, next, err := d.Due(t.Context(), now, 3, nil, nil); err != nil || len(due) != 1 || !next.Equal(now) {
		t.Errorf("%d are due, the next at %v, %v; damaged ones have the places of others: want 1, and to be asked again", len(due), next, err)
	}
	_, _, err = d.Due(t.Context(), time.Now(), 9, nil, map[uint64]bool{1: true, 4: true})
	if !errors.Is(err, sqlite.ErrDamaged) {
		t.Errorf("nothing but damaged ones is due: %v", err)
	}
	for range 3 {
		_, more, err := d.Expire(t.Context(), time.Now().Add(100*time.Hour))
		if !errors.Is(err, sqlite.ErrDamaged) || more {
			t.Errorf("expire: more %v, %v", more, err)
		}
	}
	for _, id := range []string{"a", "z"} {
		if r, err := d.Find(t.Context(), caller, id); err != nil || r.Failure != deferred.FailureExpired {
			t.Errorf("%s: %v, %v", id, r.Failure, err)
		}
	}
}

// A disk that is full refuses, and what was acknowledged stays.
func TestDeferredFullFile(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	d := l.Deferred()
	if err := l.Limit(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	n := 0
	var err error
	for ; err == nil && n < 1000; n++ {
		_, _, err = d.Submit(t.Context(), aDeferred(idOf(int64(n)), anOrigin, time.Now()))
	}
	if !errors.Is(err, sqlite.ErrFull) {
		t.Fatalf("after %d: %v", n, err)
	}
	all, err := d.List(t.Context(), &deferred.Filter{}, 0, 1000)
	if err != nil || len(all) != n-1 {
		t.Errorf("%d calls, %d were acknowledged: %v", len(all), n-1, err)
	}
	if err := l.Limit(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	if _, stored, err := d.Submit(t.Context(), aDeferred(idOf(int64(n-1)), anOrigin, time.Now())); err != nil || !stored {
		t.Errorf("when there is room: stored %v, %v", stored, err)
	}
}

func openLedgerOnce(ctx context.Context, path string) error {
	keys, err := seal.Parse(keyA)
	if err != nil {
		return err
	}
	l, err := sqlite.OpenLedger(ctx, path, keys)
	if err != nil {
		return err
	}
	return l.Close()
}

func aDeferredKey(id string) operation.Key {
	r := aDeferred(id, "", time.Time{})
	return operation.Key{Caller: r.Caller, ID: r.OperationID}
}
