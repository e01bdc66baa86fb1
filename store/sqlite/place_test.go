package sqlite_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/sqlite"
)

// TestNothingIsAcknowledgedThatIsNotThereAtTheNextStart: SQLite writes on into a file that was removed, and says that it is on the disk.
func TestNothingIsAcknowledgedThatIsNotThereAtTheNextStart(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, suffix := range []string{"", "-wal", ".lock"} {
		t.Run("the file"+suffix, func(t *testing.T) {
			path := newPath(t)
			l := ledgerAt(t, path)
			begin := func(id string) error {
				_, _, err := l.Begin(t.Context(), &operation.Record{
					Key: operation.Key{Caller: "one", ID: id}, Owner: "o", Fingerprint: operation.Fingerprint{1}, State: operation.StateRunning,
					CreateTime: now, UpdateTime: now, Until: now.Add(time.Hour),
				})
				return err
			}
			submit := func(id string) error {
				_, _, err := l.Deferred().Submit(t.Context(), &deferred.Record{
					ID: id, Caller: "one", OperationID: "deferred-" + id, State: deferred.StatePending, Created: now, Updated: now, NextAttempt: now,
				})
				return err
			}
			if err := errors.Join(begin("a"), submit("a")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+suffix, path+".away"); err != nil {
				t.Fatal(err)
			}
			gone := func(when string) {
				t.Helper()
				for what, err := range map[string]error{"begin": begin("b"), "submit": submit("b")} {
					if !errors.Is(err, sqlite.ErrMoved) {
						t.Errorf("%s, %s: %v", when, what, err)
					}
				}
			}
			gone("removed")
			if suffix != "-wal" { // of which SQLite may make a new one
				if err := os.WriteFile(path+suffix, []byte("a backup"), 0o600); err != nil {
					t.Fatal(err)
				}
				gone("replaced")
			}
			if err := os.Rename(path+".away", path+suffix); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(begin("b"), submit("b")); err != nil {
				t.Errorf("put back: %v", err)
			}
		})
	}
}

func TestAPolicyIsNotWrittenIntoAFileThatIsGone(t *testing.T) {
	path := newPath(t)
	s := at(t, path)
	fill(t, s)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, "policies/z", 1, 10); !errors.Is(err, sqlite.ErrMoved) {
		t.Errorf("removed: %v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, "policies/z", 1, 10); err != nil {
		t.Errorf("put back: %v", err)
	}
}
