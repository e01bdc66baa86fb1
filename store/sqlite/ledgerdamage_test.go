package sqlite_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/sqlite"
)

// What is damaged stays where it is and is told of, and keeps nothing else from its way.
func TestLedgerKeepsWhatIsDamaged(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	for _, id := range []string{"a", "damaged", "z"} {
		r, _, err := l.Begin(t.Context(), aCall(id))
		if err == nil {
			err = errors.Join(l.Write(t.Context(), over(r, 100)), <-begins(t.Context(), l, "running "+id))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db := raw(t, path)
	// As if each had outlived its time, and been led by somebody else.
	do(t, db, "UPDATE operations SET until = '2000-01-01T00:00:00.000000000Z', body_until = until WHERE id = 'damaged'",
		"UPDATE operations SET owner = 'nobody' WHERE id = 'running damaged'")
	told := func(what, id string, err error) {
		t.Helper()
		if !errors.Is(err, sqlite.ErrDamaged) || !strings.Contains(err.Error(), `operation "`+id+`"`) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	n, err := l.Settle(t.Context(), "another", time.Now())
	if told("Settle", "running damaged", err); n != 2 {
		t.Errorf("settled %d, want the 2 others", n)
	}
	more, err := l.Prune(t.Context(), time.Now(), 0)
	if told("Prune", "damaged", err); more {
		t.Error("more is left")
	}
	for _, id := range []string{"a", "z"} {
		if r, err := l.Operation(t.Context(), aCall(id).Key); err != nil || r.Body != nil {
			t.Errorf("%s: a body of %d bytes, %v", id, len(r.Body), err)
		}
		if r, err := l.Operation(t.Context(), aCall("running "+id).Key); err != nil || r.State != operation.StateUnknown {
			t.Errorf("running %s: %v, %v", id, r.State, err)
		}
	}
	for _, id := range []string{"damaged", "running damaged"} {
		_, err := l.Operation(t.Context(), aCall(id).Key)
		told("Operation", id, err)
		_, led, err := l.Begin(t.Context(), aCall(id))
		if told("Begin", id, err); led {
			t.Errorf("%s is led", id)
		}
		r := over(*aCall(id), 1)
		r.Epoch = 1
		told("Write", id, l.Write(t.Context(), r))
	}
}

// A lost entry of an index is no operation that was never begun.
func TestLedgerIndexThatLacksAnEntry(t *testing.T) {
	for _, index := range []string{"operations_by_key ON operations (caller, id)", "operations_by_hash ON operations (hash)"} {
		name, _, _ := strings.Cut(index, " ")
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			l := ledgerAt(t, path)
			if err := <-begins(t.Context(), l, "a"); err != nil {
				t.Fatal(err)
			}
			closedLedger(t, l)
			// The index is made anew without the entry, and then said to be of all rows.
			db := raw(t, path)
			db.SetMaxOpenConns(1)
			do(t, db, "DROP INDEX "+name, "CREATE INDEX "+index+" WHERE id <> 'a'", "PRAGMA writable_schema = 1",
				"UPDATE sqlite_schema SET sql = 'CREATE INDEX "+index+"' WHERE name = '"+name+"'")
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			l, err := sqlite.OpenLedgerUnchecked(t.Context(), path, keysOf(t, keyA))
			if err != nil {
				t.Fatal(err)
			}
			defer closedLedger(t, l)
			_, err = l.Operation(t.Context(), aCall("a").Key)
			_, led, again := l.Begin(t.Context(), aCall("a"))
			if led || errors.Is(err, operation.ErrNotFound) {
				t.Errorf("%v; led again: %v", err, led)
			}
			if name == "operations_by_key" && !(errors.Is(err, sqlite.ErrDamaged) && errors.Is(again, sqlite.ErrDamaged)) {
				t.Errorf("%v, %v; want ErrDamaged", err, again)
			}
		})
	}
}
