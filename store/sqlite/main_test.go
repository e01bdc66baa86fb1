package sqlite_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/store/storetest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(child(role, os.Getenv(pathVariable)))
	}
	// Every step of the property is a write to the disk.
	if err := flag.Set("rapid.checks", "12"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// at opens the store at path and closes it with the test.
func at(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, s)
	return s
}

func closing(t testing.TB, s *sqlite.Store) {
	t.Helper()
	t.Cleanup(func() {
		if n := s.Busy(); n != 0 {
			t.Errorf("%d connections are still taken", n)
		}
		closed(t, s)
	})
}

// closed closes s; a second time does nothing.
func closed(t testing.TB, s *sqlite.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func newPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "sallyport.db")
}

// raw is a connection that knows nothing of us, as of another program.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// do runs statements on it, each of which must succeed.
func do(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func read(t testing.TB, s *sqlite.Store) storetest.Contents {
	t.Helper()
	c, err := storetest.Read(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// put writes the revision r of a policy, with a document of this many bytes.
func put(ctx context.Context, s admin.PolicyStore, name string, r uint64, size int) error {
	now := time.Unix(int64(r), 1)
	return s.WritePolicy(ctx, admin.Version{Revision: r - 1}, &admin.Stored{
		Name: name, Version: admin.Version{Revision: r}, CreateTime: now, UpdateTime: now,
		Document: []byte(strings.Repeat(fmt.Sprintf("%s at %d. ", name, r), size/len(name)+1)[:size]),
	}, &admin.Record{
		Time: now, Principal: "operator", Action: "UpdatePolicy", Target: name, Reason: fmt.Sprint(r), EtagAfter: fmt.Sprint(r),
		Changes: []admin.Change{{Path: "retry.max_attempts", Before: fmt.Sprint(r - 1), After: fmt.Sprint(r)}},
	})
}

// fill writes some of everything.
func fill(t testing.TB, s *sqlite.Store) {
	t.Helper()
	for i := range 6 {
		for r := range uint64(4) {
			if err := put(t.Context(), s, fmt.Sprintf("policies/%d", i), r+1, 900*i); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 5 {
		origin := fmt.Sprintf("https://%d.example.com:443", i)
		err := s.WriteForced(t.Context(), origin, &admin.Forced{
			Origin: origin, Open: i%2 == 0, Principal: "operator", Reason: "stop", CreateTime: time.Unix(1, 2),
		}, &admin.Record{Time: time.Unix(3, 4), Principal: "operator", Target: origin, Reason: "stop"})
		if err != nil {
			t.Fatal(err)
		}
	}
}

var template struct {
	sync.Once

	content []byte
}

// filled is a store with some of everything, and where it is. It is made once: every write goes to the disk.
func filled(t testing.TB) (string, *sqlite.Store) {
	t.Helper()
	template.Do(func() {
		path := newPath(t)
		s := at(t, path)
		fill(t, s)
		closed(t, s)
		var err error
		if template.content, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	})
	path := newPath(t)
	place(t, path, template.content)
	return path, at(t, path)
}

// sentence wants an error of the kind, in one line that names the path and what to do.
func sentence(t testing.TB, err, kind error, path, fix string) {
	t.Helper()
	switch {
	case err == nil:
		t.Error("no error")
	case kind != nil && !strings.Contains(err.Error(), kind.Error()):
		t.Errorf("%v: want that it says %q", err, kind)
	case strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fix):
		t.Errorf("%q: want one line with %s and %q", err, path, fix)
	}
}

func empty(t testing.TB) admin.Store {
	t.Helper()
	return at(t, newPath(t))
}

func TestStore(t *testing.T) {
	storetest.Run(t, empty)
}

func TestSameAsInMemory(t *testing.T) {
	paths := map[admin.Store]string{}
	openAt := func(t testing.TB, path string) admin.Store {
		t.Helper()
		s := at(t, path)
		paths[s] = path
		return s
	}
	storetest.RunAgainst(t,
		func(t testing.TB) admin.Store {
			t.Helper()
			return openAt(t, newPath(t))
		},
		func(testing.TB) admin.Store { return memory.New() },
		func(t testing.TB, s admin.Store) admin.Store {
			t.Helper()
			closed(t, s.(*sqlite.Store))
			return openAt(t, paths[s])
		})
}
