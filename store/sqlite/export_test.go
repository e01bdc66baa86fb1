package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/sallyport/sallyport/store/seal"
)

// OpenWaiting is Open that waits for other processes as long as the test says.
func OpenWaiting(ctx context.Context, path string, wait time.Duration) (*Store, error) {
	return open(ctx, path, wait)
}

// OpenLedgerWaiting is OpenLedger that waits for other processes as long as the test says.
func OpenLedgerWaiting(ctx context.Context, path string, keys *seal.Keys, wait time.Duration) (*Ledger, error) {
	return openLedger(ctx, path, keys, wait, mostChecked)
}

// OpenLedgerUnchecked is OpenLedger of a file that is too large to be checked.
func OpenLedgerUnchecked(ctx context.Context, path string, keys *seal.Keys) (*Ledger, error) {
	return openLedger(ctx, path, keys, lockWait, 0)
}

// MostWaiting bounds the bytes that wait.
func (l *Ledger) MostWaiting(bytes int64) { l.commits.most = bytes }

// Queued tells how many writes wait for the one that is being done.
func (l *Ledger) Queued() int { return len(l.commits.queue) }

// Writing tells whether one is being done.
func (l *Ledger) Writing() bool { return l.writer.Stats().InUse > 0 }

// Ended tells whether what writes has ended.
func (l *Ledger) Ended() bool {
	select {
	case <-l.commits.ended:
		return true
	default:
		return false
	}
}

// Limit lets the file have this many pages more than it has; negative: as many as it likes.
func (s *file) Limit(ctx context.Context, more int) error {
	var pages int
	if err := s.writer.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
		return err
	}
	if more < 0 {
		more = 1 << 30
	}
	_, err := s.writer.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages+more))
	return err
}

// Settings are the values of these pragmas on a connection that writes and on one that reads.
func (s *file) Settings(ctx context.Context, pragmas ...string) (writer, reader map[string]string, err error) {
	writer, reader = map[string]string{}, map[string]string{}
	for _, p := range pragmas {
		var w, r string
		if err := s.writer.QueryRowContext(ctx, "PRAGMA "+p).Scan(&w); err != nil {
			return nil, nil, err
		}
		if err := s.reader.QueryRowContext(ctx, "PRAGMA "+p).Scan(&r); err != nil {
			return nil, nil, err
		}
		writer[p], reader[p] = w, r
	}
	return writer, reader, nil
}

// Busy tells how many connections are taken.
func (s *file) Busy() int { return s.writer.Stats().InUse + s.reader.Stats().InUse }

// NoWaitForDisk makes what is written survive no loss of power, for tests that have much to write.
func (l *Ledger) NoWaitForDisk(ctx context.Context) error {
	_, err := l.writer.ExecContext(ctx, "PRAGMA synchronous = OFF")
	return err
}
