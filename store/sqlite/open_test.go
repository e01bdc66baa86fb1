package sqlite_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/store/sqlite"
)

func TestReopened(t *testing.T) {
	path := newPath(t)
	s := at(t, path)
	fill(t, s)
	want := read(t, s)
	closed(t, s)
	for range 3 {
		s := at(t, path)
		if got := read(t, s); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if broken, err := s.Verify(t.Context()); broken != 0 || err != nil {
			t.Errorf("record %d is broken (%v)", broken, err)
		}
		closed(t, s)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 1 {
		t.Errorf("after it was closed there are %v (%v), want the file alone", left, err)
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	path := newPath(t)
	s := at(t, path)
	fill(t, s)
	private := func() {
		t.Helper()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("%s: %v (%v)", path+suffix, info.Mode(), err)
			}
		}
	}
	private()
	closed(t, s)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	s = at(t, path)
	if err := put(t.Context(), s, "policies/z", 1, 10); err != nil {
		t.Fatal(err)
	}
	private()
}

func TestPathsOfAnyKind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"plain.db", "a b", "a%41", "a?mode=memory", "a#b", "file:x", "é😀.db", "-dash", "a&b=c", ":memory:"} {
		for _, path := range []string{name, filepath.Join(dir, "absolute "+name)} {
			s := at(t, path)
			if err := put(t.Context(), s, "policies/a", 1, 10); err != nil {
				t.Fatal(err)
			}
			closed(t, s)
			if n := len(read(t, at(t, path)).Policies); n != 1 {
				t.Errorf("%s has %d policies, want 1", path, n)
			}
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestOpenedByManyAtOnce(t *testing.T) {
	path := newPath(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			s, err := sqlite.Open(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			if err := put(t.Context(), s, "policies/"+string(rune('a'+i)), 1, 10); err != nil {
				t.Error(err)
			}
			closed(t, s)
		})
	}
	wg.Wait()
	if n := len(read(t, at(t, path)).Policies); n != 6 {
		t.Errorf("%d policies, want 6", n)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.new-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestWhatCannotBeOpened(t *testing.T) {
	ours := func(t *testing.T, path string) {
		t.Helper()
		s := at(t, path)
		fill(t, s)
		closed(t, s)
	}
	content := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	const backup = "put back a backup"
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, path string)
		kind    error
		fix     string
	}{
		{"an empty file", content(""), sqlite.ErrDamaged, "the file is empty; put back a backup"},
		{"a short text", content("hello"), sqlite.ErrDamaged, backup},
		{"a long text", content(string(make([]byte, 1<<16))), sqlite.ErrDamaged, backup},
		{"another program's database", func(t *testing.T, path string) {
			t.Helper()
			do(t, raw(t, path), "CREATE TABLE t (a)")
		}, sqlite.ErrDamaged, backup},
		{"a header that is overwritten", func(t *testing.T, path string) {
			t.Helper()
			ours(t, path)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(make([]byte, 16), 0)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}, sqlite.ErrDamaged, backup},
		{"half a file", func(t *testing.T, path string) {
			t.Helper()
			ours(t, path)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, info.Size()/2); err != nil {
				t.Fatal(err)
			}
		}, sqlite.ErrDamaged, backup},
		{"tables cut off", func(t *testing.T, path string) {
			t.Helper()
			ours(t, path)
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
		}, sqlite.ErrDamaged, backup},
		{"a log without its file", func(t *testing.T, path string) {
			t.Helper()
			content("log")(t, path+"-wal")
		}, sqlite.ErrDamaged, backup},
		{"a directory", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, sqlite.ErrDamaged, backup},
		{"a newer version", func(t *testing.T, path string) {
			t.Helper()
			ours(t, path)
			do(t, raw(t, path), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (7, 1)")
		}, sqlite.ErrNewer, "run that version or a later one"},
		{"no directory", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Remove(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
		}, nil, "its directory does not exist; make it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newPath(t)
			c.prepare(t, path)
			for range 2 { // it is not repaired by trying
				s, err := sqlite.Open(t.Context(), path)
				if err == nil {
					closed(t, s)
				}
				sentence(t, err, c.kind, path, c.fix)
				if c.kind != nil && !errors.Is(err, c.kind) {
					t.Errorf("%v: not a %v", err, c.kind)
				}
				t.Log(err)
			}
		})
	}
}

func TestOpenedWithAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := newPath(t)
	for range 2 {
		if _, err := sqlite.Open(ctx, path); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		closed(t, at(t, path))
	}
}

func TestLockedByAnotherProcess(t *testing.T) {
	for _, role := range []string{"lock", "lock all"} {
		t.Run(role, func(t *testing.T) {
			path := newPath(t)
			s := at(t, path)
			fill(t, s)
			want := read(t, s)
			if role == "lock all" { // nobody else may have it open
				closed(t, s)
			}
			other := start(t, role, path, nil)
			other.says(t, "locked")

			_, err := sqlite.OpenWaiting(t.Context(), path, 20*time.Millisecond)
			sentence(t, err, sqlite.ErrLocked, path, "end the process that holds it")
			if !errors.Is(err, sqlite.ErrLocked) {
				t.Errorf("%v: not ErrLocked", err)
			}
			if role == "lock" {
				whileLocked(t, s, path)
			}
			if said := other.over(t); said != "" {
				t.Error(said)
			}
			if role == "lock all" {
				s = at(t, path)
			}
			if got := read(t, s); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if err := put(t.Context(), s, "policies/z", 1, 10); err != nil {
				t.Error(err)
			}
		})
	}
}

// whileLocked has a store whose file another process keeps to itself for writing.
func whileLocked(t *testing.T, s *sqlite.Store, path string) {
	t.Helper()
	read(t, s) // readers wait for nobody
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := put(ctx, s, "policies/z", 1, 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write whose time is over: %v", err)
	}
	impatient := make(chan error)
	ctx, cancel = context.WithCancel(t.Context())
	go func() { impatient <- put(ctx, s, "policies/z", 1, 10) }()
	cancel()
	if err := <-impatient; !errors.Is(err, context.Canceled) {
		t.Errorf("a write that is given up: %v", err)
	}
	if testing.Short() {
		return
	}
	err := put(t.Context(), s, "policies/z", 1, 10) // waits as long as a store waits
	if !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("a write: %v, want ErrLocked", err)
	}
	sentence(t, err, sqlite.ErrLocked, path, "end the process that holds it")
}

func TestFullFile(t *testing.T) {
	s := at(t, newPath(t))
	fill(t, s)
	want := read(t, s)
	if err := s.Limit(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := put(t.Context(), s, "policies/z", 1, 1<<16); !errors.Is(err, sqlite.ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		if got := read(t, s); !reflect.DeepEqual(got, want) {
			t.Error("a write that failed has changed something")
		}
	}
	if err := s.Limit(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, "policies/z", 1, 1<<16); err != nil {
		t.Errorf("after room was made: %v", err)
	}
}

// That a commit is on the disk and not only with the system shows when the power fails, which no test here can bring about; so the
// settings that promise it are read back.
func TestSettings(t *testing.T) {
	s := at(t, newPath(t))
	want := map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000", "trusted_schema": "0", "cell_size_check": "1",
	}
	for range 2 {
		writer, reader, err := s.Settings(t.Context(), slices.Collect(maps.Keys(want))...)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(writer, want) || !maps.Equal(reader, want) {
			t.Errorf("got %v and %v, want %v", writer, reader, want)
		}
		// Connections that are broken off are made anew, with the same.
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_ = put(ctx, s, "policies/a", 1, 1<<20)
			_, _ = s.Policies(ctx)
			cancel()
		}
	}
}
