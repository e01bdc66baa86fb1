package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	driver "modernc.org/sqlite"

	"github.com/sallyport/sallyport/admin"
)

const (
	// lockWait is how long a write waits for another process that writes.
	lockWait = 5 * time.Second
	// readers is how many connections read at once.
	readers = 4
	// walLimit is the size in bytes to which the log is cut back after its content went into the file.
	walLimit = 64 << 20
)

// Store is a file of SQLite.
type Store struct {
	path   string
	writer *sql.DB // one connection: SQLite has one writer, and waiting for it in Go is fair and ends with the context
	reader *sql.DB
}

var _ admin.Store = (*Store)(nil)

// Open opens the store in the file at path and makes it if there is none; the directory must exist. It checks the file as far as
// SQLite can, brings the tables of an older version up to date, and makes sure that it can write. What it refuses is an error of one
// line that names the path and what to do: see the errors of this package.
func Open(ctx context.Context, path string) (*Store, error) { return open(ctx, path, lockWait) }

func open(ctx context.Context, path string, wait time.Duration) (*Store, error) {
	s := &Store{path: path}
	if err := s.open(ctx, wait); err != nil {
		return nil, errors.Join(s.explain(ctx, err), s.close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, wait time.Duration) error {
	if err := prepareFile(ctx, s.path); err != nil {
		return err
	}
	var err error
	if s.writer, err = connect(s.path, wait, 1, "journal_mode(WAL)", "journal_size_limit("+strconv.Itoa(walLimit)+")"); err != nil {
		return err
	}
	if s.reader, err = connect(s.path, wait, readers, "query_only(1)"); err != nil {
		return err
	}
	if err := check(ctx, s.writer); err != nil {
		return err
	}
	if err := migrate(ctx, s.writer); err != nil {
		return err
	}
	// Neither a lock nor a file that cannot be written shows before something writes, even if it changes nothing.
	return transact(ctx, s.writer, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM forced_breakers WHERE false")
		return err //nolint:wrapcheck // explained by Open
	})
}

// Close ends what is going on and closes the file. Nothing may be called after it.
func (s *Store) Close() error { return s.explain(context.Background(), s.close()) }

// close closes the writer last, since whoever closes last puts the log into the file.
func (s *Store) close() error {
	var err error
	if s.reader != nil {
		err = s.reader.Close()
	}
	if s.writer != nil {
		err = errors.Join(err, s.writer.Close())
	}
	return err
}

// connect opens nothing yet: connections are made when they are needed, and again after one was broken off by its context. So
// everything that holds for a connection must be in its address.
func connect(path string, wait time.Duration, connections int, pragmas ...string) (*sql.DB, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the path
	}
	address := url.URL{Scheme: "file", Path: filepath.ToSlash(absolute), RawQuery: url.Values{
		"mode":       {"rw"}, // never makes the file
		"_txlock":    {"immediate"},
		"_dqs":       {"0"},
		"_error_rc":  {"1"},
		"_defensive": {"1"},
		"_pragma": append([]string{
			"busy_timeout(" + strconv.FormatInt(wait.Milliseconds(), 10) + ")",
			"synchronous(FULL)", // what was acknowledged is on the disk, see lang "PRAGMA synchronous": WAL needs FULL for that
			"foreign_keys(1)",
			"trusted_schema(0)",
			"cell_size_check(1)",
		}, pragmas...),
	}.Encode()}
	connector, err := driver.NewConnector(address.String())
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the path
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// write does f in a transaction: all of it is on the disk when it returns nil.
func (s *Store) write(ctx context.Context, f func(*sql.Tx) error) error {
	return s.explain(ctx, transact(ctx, s.writer, f))
}

func transact(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err //nolint:wrapcheck // explained by the caller
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // it fails where SQLite has rolled back by itself
		return err
	}
	return tx.Commit() //nolint:wrapcheck // explained by the caller
}

// list reads all rows of a query, each by scan.
func list[T any](ctx context.Context, s *Store, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	all, err := collect(ctx, s.reader, scan, query, args...)
	return all, s.explain(ctx, err)
}

func collect[T any](ctx context.Context, db *sql.DB, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err //nolint:wrapcheck // explained by the caller
	}
	defer func() { _ = rows.Close() }() // what went wrong was told by Err
	var all []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		return nil, err //nolint:wrapcheck // explained by the caller
	}
	return all, nil
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
