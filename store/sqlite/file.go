package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// prepareFile makes sure that there is a store at path, for its owner alone.
func prepareFile(ctx context.Context, path string, of *schema) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return create(ctx, path, of)
	case err != nil:
		return err //nolint:wrapcheck // explained by Open
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: not a file", ErrDamaged)
	case info.Size() == 0:
		// A store appears whole (see create), so this one was cut off. SQLite would take it for a new one.
		return fmt.Errorf("%w: the file is empty", ErrDamaged)
	case info.Mode().Perm()&0o077 != 0:
		return os.Chmod(path, info.Mode().Perm()&0o700) //nolint:wrapcheck // explained by Open
	default:
		return nil
	}
}

// create makes a store under another name and links it to path when it is whole and on the disk, so that a crash leaves none rather
// than a part of one, and of two processes one makes it.
func create(ctx context.Context, path string, of *schema) (err error) {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return errNoDirectory
	}
	// SQLite would put the log of what stood here into what is made now.
	if _, err := os.Lstat(path + "-wal"); err == nil {
		return fmt.Errorf("%w: the file is missing, its log %s-wal is not", ErrDamaged, path)
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*") // 0600, and SQLite gives the log the same
	if err != nil {
		return err //nolint:wrapcheck // explained by Open
	}
	name := f.Name()
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if e := os.Remove(name + suffix); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	if err := f.Close(); err != nil {
		return err //nolint:wrapcheck // explained by Open
	}
	db, err := connect(name, lockWait, 1, "journal_mode(WAL)")
	if err != nil {
		return err
	}
	err = migrate(ctx, db, of)
	if err == nil && of.begin != nil {
		err = transact(ctx, db, func(tx *sql.Tx) error { return of.begin(ctx, tx) })
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Link(name, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err //nolint:wrapcheck // explained by Open
	}
	return syncDirectory(dir)
}

// syncDirectory makes a new name last.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err //nolint:wrapcheck // explained by Open
	}
	return errors.Join(d.Sync(), d.Close())
}
