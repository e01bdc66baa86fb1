package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/seal"
	"github.com/sallyport/sallyport/store/sqlite"
)

const (
	// ledgerName is the file of the data directory with the operations, ledgerKeysName that with the keys they are sealed with. One of that
	// name in the directory of secrets wins over it.
	ledgerName     = "ledger.db"
	ledgerKeysName = "ledger-keys"
	// ledgerAgain is the least time between two tries to open it.
	ledgerAgain = 2 * time.Second
	// ledgerOpens bounds one try. A large ledger has much to bring up to date.
	ledgerOpens = time.Minute
)

// ledgerFile is the ledger of this broker. A ledger that cannot be opened keeps no broker from starting: calls that need it are refused
// until it can.
type ledgerFile struct {
	path, keys string
	log        *slog.Logger

	mu     sync.Mutex // protects the fields below; held while the file is opened, which the calls that need it wait for
	ledger *sqlite.Ledger
	err    error // of the last try
	next   time.Time
	closed bool
}

// openLedger opens the ledger; nil where several brokers serve the same callers and could not know of each other's operations.
func openLedger(ctx context.Context, s *settings, log *slog.Logger) *ledgerFile {
	if s.Replicas > 1 {
		return nil
	}
	l := &ledgerFile{path: filepath.Join(s.Data, ledgerName), keys: filepath.Join(s.Data, ledgerKeysName), log: log}
	if s.Secrets != "" {
		given := filepath.Join(s.Secrets, ledgerKeysName)
		if !missing(given) {
			l.keys = given
		}
	}
	if missing(l.path) && !missing(l.keys) {
		log.Warn("there is no ledger of operations and its keys are there: a new one is begun, and what the old one knew of operation ids is forgotten", "file", l.path)
	}
	if _, err := l.get(ctx); err != nil {
		log.Error("the ledger of operations cannot be used; calls with an operation id are refused until it can", "error", err)
	}
	return l
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

var errLedgerClosed = errors.New("the ledger is closed")

// get is the ledger, opened if it was not.
func (l *ledgerFile) get(ctx context.Context) (*sqlite.Ledger, error) {
	opened, back, err := l.opened(ctx)
	if back {
		l.log.Info("the ledger of operations can be used again")
	}
	return opened, err
}

// opened is get; back: it could not be opened before.
func (l *ledgerFile) opened(ctx context.Context) (ledger *sqlite.Ledger, back bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, false, errLedgerClosed
	case l.ledger != nil:
		return l.ledger, false, nil
	case l.err != nil && time.Now().Before(l.next):
		return nil, false, l.err
	}
	// Whoever asks first opens it for all: his time is not that of the file.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerOpens)
	defer cancel()
	ledger, err = l.open(ctx)
	l.next = time.Now().Add(ledgerAgain)
	back = l.err != nil && err == nil
	l.ledger, l.err = ledger, err
	return ledger, back, err
}

func (l *ledgerFile) open(ctx context.Context) (*sqlite.Ledger, error) {
	keys, err := seal.Load(l.keys)
	if err != nil {
		return nil, err
	}
	return sqlite.OpenLedger(ctx, l.path, keys)
}

// Close closes the file. A nil one is none.
func (l *ledgerFile) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.ledger == nil {
		return nil
	}
	return l.ledger.Close()
}

func (l *ledgerFile) Begin(ctx context.Context, start *operation.Record) (operation.Record, bool, error) {
	ledger, err := l.get(ctx)
	if err != nil {
		return operation.Record{}, false, err
	}
	return ledger.Begin(ctx, start)
}

func (l *ledgerFile) Write(ctx context.Context, r *operation.Record) error {
	ledger, err := l.get(ctx)
	if err != nil {
		return err
	}
	return ledger.Write(ctx, r)
}

func (l *ledgerFile) Operation(ctx context.Context, k operation.Key) (operation.Record, error) {
	ledger, err := l.get(ctx)
	if err != nil {
		return operation.Record{}, err
	}
	return ledger.Operation(ctx, k)
}

func (l *ledgerFile) Operations(ctx context.Context, caller string, s operation.State, after operation.Cursor, n int) ([]operation.Record, error) {
	ledger, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return ledger.Operations(ctx, caller, s, after, n)
}

func (l *ledgerFile) Settle(ctx context.Context, owner string, now time.Time) (int, error) {
	ledger, err := l.get(ctx)
	if err != nil {
		return 0, err
	}
	return ledger.Settle(ctx, owner, now)
}

func (l *ledgerFile) Prune(ctx context.Context, now time.Time, mostBodyBytes int64) (bool, error) {
	ledger, err := l.get(ctx)
	if err != nil {
		return false, err
	}
	return ledger.Prune(ctx, now, mostBodyBytes)
}

// Identity is that of the ledger once it was opened.
func (l *ledgerFile) Identity() (name string, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ledger == nil {
		return "", time.Time{}
	}
	return l.ledger.Identity()
}
