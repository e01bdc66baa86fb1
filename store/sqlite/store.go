package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/sallyport/sallyport/admin"
)

// Store is a file of SQLite with what operators decide.
type Store struct{ file }

var _ admin.Store = (*Store)(nil)

// stores are the files of a [Store]. All of a file is checked at start, of whatever size: it is small.
var stores = schema{
	noun: "store", directory: "migrations", application: 0x53707274, probe: "DELETE FROM forced_breakers WHERE false",
	checkedBytes: math.MaxInt64,
}

// Open opens the store in the file at path and makes it if there is none; the directory must exist. It checks the file as far as
// SQLite can, brings the tables of an older version up to date, and makes sure that it can write. What it refuses is an error of one
// line that names the path and what to do: see the errors of this package.
func Open(ctx context.Context, path string) (*Store, error) { return open(ctx, path, lockWait) }

func open(ctx context.Context, path string, wait time.Duration) (*Store, error) {
	s := &Store{}
	if err := s.file.open(ctx, path, &stores, wait); err != nil {
		return nil, err
	}
	return s, nil
}

// write does f in a transaction: all of it is on the disk when it returns nil.
func (s *Store) write(ctx context.Context, f func(*sql.Tx) error) error {
	return s.explain(ctx, transact(ctx, s.writer, func(tx *sql.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return s.inPlace()
	}))
}

// below is the bound of a page that begins at before, 0 for the latest. SQLite's integers are signed.
func below[T int64 | uint64](before T) int64 {
	if before == 0 || uint64(before) > math.MaxInt64 && before > 0 {
		return math.MaxInt64
	}
	return int64(before)
}

// atMost is n as a LIMIT, for which a negative number is none at all.
func atMost(n int) int { return max(n, 0) }

// timeLayout has the digits of a nanosecond, all of them, so that text sorts as time does.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

func formatTime(t time.Time) (string, error) {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return "", fmt.Errorf("the time %v cannot be stored: its year is not in 0..9999", t)
	}
	return t.Format(timeLayout), nil
}

func parseTime(s string) (time.Time, error) { return time.Parse(timeLayout, s) } //nolint:wrapcheck // the caller says of what
