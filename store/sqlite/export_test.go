package sqlite

import (
	"context"
	"fmt"
	"time"
)

// OpenWaiting is Open that waits for other processes as long as the test says.
func OpenWaiting(ctx context.Context, path string, wait time.Duration) (*Store, error) {
	return open(ctx, path, wait)
}

// Limit lets the file have this many pages more than it has; negative: as many as it likes.
func (s *Store) Limit(ctx context.Context, more int) error {
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

// Busy tells how many connections are taken.
func (s *Store) Busy() int { return s.writer.Stats().InUse + s.reader.Stats().InUse }
