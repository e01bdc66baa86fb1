package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
	if role != "full" {
		return fmt.Errorf("no role %q", role)
	}
	// 4 MiB: two policies of the largest size, and their log.
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=4m"); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
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
