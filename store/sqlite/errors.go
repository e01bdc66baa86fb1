package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/operation"
)

// What can be wrong with a store. The error that carries one of them names the file and what to do.
var (
	// ErrDamaged: the file, or a row in it, is not what was written.
	ErrDamaged = errors.New("damaged")
	// ErrLocked: another process is writing, and kept at it for longer than was waited.
	ErrLocked = errors.New("locked by another process")
	// ErrNotWritable: the file or its directory may not be written.
	ErrNotWritable = errors.New("not writable")
	// ErrFull: the disk is full. Nothing was written; what is stored can be read.
	ErrFull = errors.New("disk full")
	// ErrNewer: a later version of the program has written the file.
	ErrNewer = errors.New("written by a newer version")
	// ErrSealed: the file of keys lacks the key that the ledger is sealed with.
	ErrSealed = errors.New("sealed with a key that the file of keys lacks")
	// ErrMoved: the file, its log or its lock was removed or replaced while it was in use. Nothing was written.
	ErrMoved = errors.New("removed or replaced while it was in use")
	// ErrOverloaded: as many writes wait for the disk as may.
	ErrOverloaded = errors.New("overloaded: too many writes wait for the disk")

	errNoDirectory = errors.New("its directory does not exist")
)

// fixes say what to do.
var fixes = []struct {
	err error
	fix string
}{
	{ErrDamaged, "put back a backup, or move it away with its -wal and -shm files to begin with an empty one"},
	{ErrLocked, "end the process that holds it"},
	{ErrNotWritable, "let the broker's user write to the file and its directory"},
	{ErrFull, "make room on the disk"},
	{ErrNewer, "run that version or a later one, or put back a backup"},
	{ErrSealed, "put the key back into the file of keys"},
	{ErrMoved, "put back what was there, or start the broker again"},
	{errNoDirectory, "make it, or name another"},
}

// explain makes an error of what SQLite or the system said: what is wrong, with which file, and what to do.
func (s *file) explain(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, admin.ErrChanged), errors.Is(err, admin.ErrNotFound),
		errors.Is(err, operation.ErrNotFound), errors.Is(err, operation.ErrSuperseded), isDeferredAnswer(err):
		return err
	case ctx.Err() != nil:
		// SQLite was interrupted, or the pool gave up; what they say of it differs.
		return fmt.Errorf("%s %s: %w", s.noun, s.path, ctx.Err())
	}
	kind := kindOf(err)
	err = oneLineError{err}
	if kind != nil && !errors.Is(err, kind) {
		err = fmt.Errorf("%w: %w", kind, err)
	}
	for _, f := range fixes {
		if errors.Is(err, f.err) {
			return fmt.Errorf("%s %s: %w; %s", s.noun, s.path, err, f.fix)
		}
	}
	return fmt.Errorf("%s %s: %w", s.noun, s.path, err)
}

// kindOf is the error of this package that an error of SQLite or the system stands for; nil for none.
func kindOf(err error) error {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return kindOfCode(e.Code())
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ErrFull
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return ErrNotWritable
	default:
		return nil
	}
}

// kindOfCode reads a result code (https://www.sqlite.org/rescode.html); its low byte is the primary one.
func kindOfCode(code int) error {
	switch code {
	case codes.SQLITE_IOERR_SHMSIZE: // what WAL needs beside the file could not grow
		return ErrFull
	case codes.SQLITE_IOERR_SHORT_READ, codes.SQLITE_IOERR_CORRUPTFS, codes.SQLITE_IOERR_DATA:
		return ErrDamaged
	}
	switch code & 0xff {
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return ErrDamaged
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return ErrLocked
	case codes.SQLITE_READONLY, codes.SQLITE_PERM, codes.SQLITE_CANTOPEN:
		return ErrNotWritable
	case codes.SQLITE_FULL:
		return ErrFull
	default:
		return nil
	}
}

// oneLineError is an error whose text has no line breaks: SQLite cites the statements of a schema.
type oneLineError struct{ error }

func (e oneLineError) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

func (e oneLineError) Unwrap() error { return e.error }
