package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver of the broker's file
)

// storeLock keeps everybody else from writing into a file of SQLite. It is held from outside of the broker, which waits for it as for any
// other process that writes.
type storeLock struct {
	db *sql.DB
	tx *sql.Tx
}

func lockStore(ctx context.Context, path string) (*storeLock, error) {
	address := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw&_txlock=immediate&_pragma=busy_timeout(3000)"}
	db, err := sql.Open("sqlite", address.String())
	if err != nil {
		return nil, fmt.Errorf("the file of the broker: %w", err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the file of the broker: %w", err), db.Close())
	}
	return &storeLock{db, tx}, nil
}

// release lets others write. The file stays open: who closes it last puts the log into it, and that is not to be us.
func (l *storeLock) release() error {
	if l == nil || l.tx == nil {
		return nil
	}
	tx := l.tx
	l.tx = nil
	return tx.Rollback() //nolint:wrapcheck // says all there is to say
}

// close is for after the broker has opened the file again.
func (l *storeLock) close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.release(), l.db.Close())
}
