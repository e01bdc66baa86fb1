package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	driver "modernc.org/sqlite"
)

const (
	// lockWait is how long a write waits for another process that writes.
	lockWait = 5 * time.Second
	// readers is how many connections read at once.
	readers = 4
	// walLimit is the size in bytes to which the log is cut back after its content went into the file.
	walLimit = 64 << 20
)

// schema is what files of one kind have in common.
type schema struct {
	// noun says what it is, in errors.
	noun string
	// directory has the migrations.
	directory string
	// application stands in the header of the file, see the first migration.
	application int64
	// probe is a statement that writes and changes nothing.
	probe string
	// checkedBytes is the size up to which a file is checked when it is opened.
	checkedBytes int64
	// begin puts into a new file what it has from the start; nil: nothing.
	begin func(ctx context.Context, tx *sql.Tx) error
}

// file is an open file of SQLite.
type file struct {
	noun, path string
	writer     *sql.DB // one connection: SQLite has one writer, and waiting for it in Go is fair and ends with the context
	reader     *sql.DB
	places     []place // that of the file first; see inPlace
}

// open leaves nothing open where it fails; the error is explained.
func (s *file) open(ctx context.Context, path string, of *schema, wait time.Duration) error {
	s.noun, s.path = of.noun, path
	if err := s.connect(ctx, of, wait); err != nil {
		return errors.Join(s.explain(ctx, err), s.close())
	}
	return nil
}

func (s *file) connect(ctx context.Context, of *schema, wait time.Duration) error {
	if err := prepareFile(ctx, s.path, of); err != nil {
		return err
	}
	if err := checkAlone(ctx, s.path, of, wait); err != nil {
		return err
	}
	var err error
	if s.writer, err = connect(s.path, wait, 1, "journal_mode(WAL)", "journal_size_limit("+strconv.Itoa(walLimit)+")"); err != nil {
		return err
	}
	if s.reader, err = connect(s.path, wait, readers, "query_only(1)"); err != nil {
		return err
	}
	if err := migrate(ctx, s.writer, of); err != nil {
		return err
	}
	here, err := placeOf(s.path)
	if err != nil {
		return err
	}
	s.places = append(s.places, here)
	// Neither a lock nor a file that cannot be written shows before something writes, even if it changes nothing.
	return transact(ctx, s.writer, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, of.probe)
		return err //nolint:wrapcheck // explained by open
	})
}

// Close ends what is going on and closes the file. Nothing may be called after it.
func (s *file) Close() error { return s.explain(context.Background(), s.close()) }

// close closes the writer last, since whoever closes last puts the log into the file.
func (s *file) close() error {
	var err error
	if s.reader != nil {
		err = s.reader.Close()
	}
	if s.writer != nil {
		err = errors.Join(err, s.writer.Close())
	}
	return err
}

// checkAlone checks a file before there is a connection that may write. Such a one would put the log into a damaged file when it is closed,
// and take from whoever puts a backup in its place what stands in the log alone.
func checkAlone(ctx context.Context, path string, of *schema, wait time.Duration) error {
	db, err := connectAs("ro", path, wait, 1)
	if err != nil {
		return err
	}
	return errors.Join(check(ctx, db, path, of), db.Close())
}

// connect is connectAs for reading and writing.
func connect(path string, wait time.Duration, connections int, pragmas ...string) (*sql.DB, error) {
	return connectAs("rw", path, wait, connections, pragmas...) // never makes the file
}

// connectAs opens nothing yet: connections are made when they are needed, and again after one was broken off by its context. So
// everything that holds for a connection must be in its address.
func connectAs(mode, path string, wait time.Duration, connections int, pragmas ...string) (*sql.DB, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the path
	}
	address := url.URL{Scheme: "file", Path: filepath.ToSlash(absolute), RawQuery: url.Values{
		"mode":       {mode},
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
func list[T any](ctx context.Context, s *file, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	all, err := collect(ctx, s.reader, scan, query, args...)
	return all, s.explain(ctx, err)
}

func collect[T any](ctx context.Context, db *sql.DB, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	return gather(rows, err, scan)
}

// gather reads all rows of a query, and closes them.
func gather[T any](rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
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
