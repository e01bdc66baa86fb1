package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// lockFile keeps every other ledger off the file at path for as long as what it returns is open; a crash gives it back. SQLite's own locks
// last no longer than a write: of two brokers each would take the other's attempts for those of a process that ended.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		if _, e := os.Stat(filepath.Dir(path)); errors.Is(e, fs.ErrNotExist) {
			err = errNoDirectory
		}
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w: another broker uses it", ErrLocked)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
