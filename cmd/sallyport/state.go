package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// brokerState is the file broker.json of the data directory: who this broker is.
type brokerState struct {
	// ID names this broker for as long as its data directory lives.
	ID string `json:"id"`
	// Boots counts its starts: what an earlier process of the same broker said is told apart from what this one says.
	Boots uint64 `json:"boots"`

	lock *os.File // held while the broker runs
}

// String is the broker_id of replies.
func (s *brokerState) String() string { return fmt.Sprintf("%s@%d", s.ID, s.Boots) }

// process names this process and no other one. A broker_id comes back with a broker.json of before: what the ledger says that it was making
// would be taken for this process's own, of which it knows that nothing was sent.
func (s *brokerState) process() string { return s.String() + "/" + newID() }

// openState makes the data directory if it is not there, counts this start, and returns who this broker is.
func openState(dir string) (*brokerState, error) {
	// 0700 and 0600: answers and keys will live here.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory %s cannot be used: %w; give another with --data", dir, cause(err))
	}
	lock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "broker.json")
	s, err := readState(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.lock = lock
	s.Boots++
	if err := writeState(path, s); err != nil {
		err = fmt.Errorf("data directory %s cannot be written: %w; give another with --data", dir, cause(err))
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// close gives the data directory back.
func (s *brokerState) close() error { return s.lock.Close() } //nolint:wrapcheck // the caller says what was attempted

// lockDirectory keeps a second broker out of the directory, for as long as the file it returns is open; a crash gives it back.
func lockDirectory(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s cannot be written: %w; give another with --data", dir, cause(err))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("data directory %s is in use by another broker; give another with --data", dir)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func readState(path string) (*brokerState, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &brokerState{ID: newID()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, cause(err))
	}
	s := &brokerState{}
	if err := json.Unmarshal(content, s); err != nil || s.ID == "" {
		return nil, fmt.Errorf("%s is damaged; remove it, and the broker takes a new id", path)
	}
	return s, nil
}

// writeState replaces the file whole, so that a crash leaves the old one or the new one.
func writeState(path string, s *brokerState) error {
	content, err := json.Marshal(s)
	if err != nil {
		return err //nolint:wrapcheck // cannot happen, and the caller says what was attempted
	}
	return writeWhole(path, append(content, '\n'))
}

// writeWhole replaces a file whole.
func writeWhole(path string, content []byte) error {
	next := path + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what was attempted
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync() // else a file that bears the name may be empty after a power failure
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err //nolint:wrapcheck // as above
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	return errors.Join(dir.Sync(), dir.Close()) // else the old file may be back after a power failure
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// cause drops the operation and path of a file error, where the sentence names them already.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
