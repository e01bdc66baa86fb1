package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/seal"
	"github.com/sallyport/sallyport/store/sqlite"
)

// namespace runs a child where it may mount, as root of a user namespace, or as a plain user there whom permissions bind even if
// we are root.
func namespace(user int, flags uintptr) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | flags,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}},
		}
	}
}

func linuxChild(ctx context.Context, role, path string) error {
	if role != "full" && role != "ledger full" {
		return fmt.Errorf("no role %q", role)
	}
	// 4 MiB: two policies of the largest size, and their log.
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=4m"); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	if role == "ledger full" {
		return fillLedgerUp(ctx, path)
	}
	for _, size := range []int{100, 3000, 60_000, 1 << 20} {
		if err := fillUp(ctx, filepath.Join(path, fmt.Sprint(size)), size); err != nil {
			return fmt.Errorf("documents of %d bytes: %w", size, err)
		}
	}
	return nil
}

// fillUp has a store on a disk that gets full, again and again, and asks what it has.
func fillUp(ctx context.Context, dir string, size int) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, ballast := filepath.Join(dir, "sallyport.db"), filepath.Join(dir, "ballast")
	s, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	written := uint64(0)
	for round := range 3 {
		if err := takeAll(ballast); err != nil {
			return err
		}
		// The log may have room from before, so it need not fail at once. 4 MiB hold no 5000 writes.
		for err = nil; err == nil; {
			if err = put(ctx, s, "policies/a", written+1, size); err == nil {
				if written++; written > 5000 {
					return fmt.Errorf("the disk is never full")
				}
			}
		}
		if !errors.Is(err, sqlite.ErrFull) || !strings.Contains(err.Error(), path+": disk full") || !strings.Contains(err.Error(), "make room") {
			return fmt.Errorf("on a full disk: %w", err)
		}
		if err := holds(ctx, s, written); err != nil {
			return fmt.Errorf("round %d, full: %w", round, err)
		}
		// A second one on the full disk works or says why not.
		if second, err := sqlite.Open(ctx, path); err == nil {
			err = errors.Join(holds(ctx, second, written), second.Close())
			if err != nil {
				return fmt.Errorf("round %d, opened when full: %w", round, err)
			}
		} else if !errors.Is(err, sqlite.ErrFull) {
			return fmt.Errorf("round %d, opening when full: %w", round, err)
		}
		if _, err := sqlite.Open(ctx, filepath.Join(dir, "new.db")); !errors.Is(err, sqlite.ErrFull) {
			return fmt.Errorf("round %d, a new one when full: %w", round, err)
		}
		if err := os.Remove(ballast); err != nil {
			return err
		}
		// There is room again: no need to open it anew.
		if size < 1<<20 || round == 0 {
			if err := put(ctx, s, "policies/a", written+1, size); err != nil {
				return fmt.Errorf("round %d, after room was made: %w", round, err)
			}
			written++
		}
		if err := holds(ctx, s, written); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "new.db*"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left behind: %v", left)
	}
	return err
}

// takeAll writes a file until the disk is full.
func takeAll(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return f.Close()
}

// holds wants these revisions of policies/a, a record of each, and no more.
func holds(ctx context.Context, s *sqlite.Store, revisions uint64) error {
	all, err := s.Revisions(ctx, "policies/a", 0, 1<<20)
	if err != nil {
		return err
	}
	records, err := s.Records(ctx, "", "", 0, 1<<20)
	if err != nil {
		return err
	}
	if uint64(len(all)) != revisions || uint64(len(records)) != revisions {
		return fmt.Errorf("%d revisions and %d records of %d writes", len(all), len(records), revisions)
	}
	broken, err := s.Verify(ctx)
	if broken != 0 {
		return fmt.Errorf("record %d is broken", broken)
	}
	return err
}

func TestFullDisk(t *testing.T) {
	p := start(t, "full", t.TempDir(), namespace(0, syscall.CLONE_NEWNS))
	if said := p.over(t); strings.Contains(said, "cannot mount") {
		t.Skip(said)
	} else if said != "" {
		t.Error(said)
	}
}

// fillLedgerUp has a ledger on a disk that gets full, and many who write to it.
func fillLedgerUp(ctx context.Context, dir string) (err error) {
	keys, err := seal.Parse(keyA)
	if err != nil {
		return err
	}
	path, ballast := filepath.Join(dir, "ledger.db"), filepath.Join(dir, "ballast")
	l, err := sqlite.OpenLedger(ctx, path, keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	acknowledged := []operation.Record{}
	for round := range 3 {
		if err := takeAll(ballast); err != nil {
			return err
		}
		const together = 8
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			full = make([]error, together)
		)
		for i := range together {
			wg.Go(func() {
				// The log may have room from before, so it need not fail at once. 4 MiB hold no 1000 of these.
				for n := 0; n < 1000 && full[i] == nil; n++ {
					var r operation.Record
					r, _, full[i] = l.Begin(ctx, aCall(fmt.Sprintf("%d of %d in %d", n, i, round)))
					if full[i] == nil {
						mu.Lock()
						acknowledged = append(acknowledged, r)
						mu.Unlock()
						full[i] = l.Write(ctx, over(r, 20_000))
					}
				}
			})
		}
		wg.Wait()
		for _, err := range full {
			if !errors.Is(err, sqlite.ErrFull) || !strings.Contains(err.Error(), "ledger "+path+": disk full") {
				return fmt.Errorf("round %d, on a full disk: %w", round, err)
			}
		}
		for _, r := range acknowledged {
			if got, err := l.Operation(ctx, r.Key); err != nil || got.Epoch != 1 {
				return fmt.Errorf("round %d, %s was acknowledged: %w", round, r.ID, err)
			}
		}
		if err := os.Remove(ballast); err != nil {
			return err
		}
		// There is room again, or Prune makes it: no need to open it anew.
		if _, err := l.Prune(ctx, time.Now(), 0); err != nil {
			return fmt.Errorf("round %d, pruning: %w", round, err)
		}
		r, _, err := l.Begin(ctx, aCall(fmt.Sprint("after ", round)))
		if err == nil {
			err = l.Write(ctx, over(r, 20_000))
		}
		if err != nil {
			return fmt.Errorf("round %d, after room was made: %w", round, err)
		}
	}
	return nil
}

func TestLedgerFullDisk(t *testing.T) {
	p := start(t, "ledger full", t.TempDir(), namespace(0, syscall.CLONE_NEWNS))
	if said := p.over(t); strings.Contains(said, "cannot mount") {
		t.Skip(said)
	} else if said != "" {
		t.Error(said)
	}
}

func TestNotWritable(t *testing.T) {
	for _, c := range []struct {
		name      string
		exists    bool
		dir, file os.FileMode
	}{
		{"a directory without a store", false, 0o500, 0},
		{"a directory with a store", true, 0o500, 0o600},
		{"a file", true, 0o700, 0o400},
		{"a file that cannot be read", true, 0o700, 0},
		{"a directory that cannot be entered", true, 0, 0o600},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newPath(t)
			if c.exists {
				s := at(t, path)
				fill(t, s)
				closed(t, s)
				if err := os.Chmod(path, c.file); err != nil {
					t.Fatal(err)
				}
			}
			dir := filepath.Dir(path)
			if err := os.Chmod(dir, c.dir); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
			said := start(t, "open", path, namespace(1000, 0)).over(t)
			sentence(t, errors.New(strings.TrimSuffix(said, "\n")), sqlite.ErrNotWritable, path, "let the broker's user write")
		})
	}
}
