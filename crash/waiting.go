package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// readyWithin is how long a broker may take from its start to its first answer about its deferred calls.
const readyWithin = 3 * time.Second

// waiting kills the broker while so many calls wait for tomorrow, and measures until it answers again. All of them are there then.
func waiting(ctx context.Context, s *stage, n int, out io.Writer) error {
	const atOnce, tomorrow = 64, 23 * time.Hour
	due := time.Now().Add(tomorrow)
	mode := history.Modes()[0]
	inParallel(atOnce, n, func(i int) {
		s.submit(ctx, &history.Deferred{Name: fmt.Sprintf("waits-%05d", i), Mode: mode}, s.up.Address(), due)
	})
	var began time.Time
	err := s.kill(ctx, true, func() error {
		began = time.Now()
		return nil
	})
	if err == nil {
		err = s.caller.Ready(ctx)
	}
	took := time.Since(began)
	if err != nil {
		return err
	}
	counts, err := s.caller.Counts(ctx)
	_, _ = fmt.Fprintf(out, "ready after a kill with %d waiting: %s\n", n, took.Round(time.Millisecond))
	switch {
	case err != nil:
		return err
	case counts["PENDING"] != n:
		return fmt.Errorf("%w: %d were accepted, %v are there", errViolated, n, counts)
	case took > readyWithin:
		return fmt.Errorf("%w: ready after %s, at most %s", errViolated, took, readyWithin)
	}
	return nil
}
