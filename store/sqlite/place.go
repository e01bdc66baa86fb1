package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// place is a file that a store stands on, as it was when the store was opened.
type place struct {
	path string
	info fs.FileInfo
}

func placeOf(path string) (place, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return place{}, err //nolint:wrapcheck // explained by open
	}
	info, err := os.Stat(absolute)
	return place{absolute, info}, err //nolint:wrapcheck // as above
}

// inPlace reports that what is written now is still there at the next start. SQLite goes on with a file that was removed, or that a backup was
// put in the place of, and says that all is on the disk; it is on none that anybody finds again. Nor is one the only writer any more whose lock
// file is gone: another process makes a new one.
func (s *file) inPlace() error {
	for _, p := range s.places {
		info, err := os.Stat(p.path)
		switch {
		case err == nil && os.SameFile(info, p.info):
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %s", ErrMoved, p.path)
		default:
			return err //nolint:wrapcheck // explained by the caller
		}
	}
	// SQLite makes a new log when all connections were closed, so that it only has to be there.
	log := s.places[0].path + "-wal"
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrMoved, log)
	}
	return nil
}
