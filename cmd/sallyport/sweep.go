package main

import "time"

// sweepEvery is how often the memory of idle origins is given back: an origin keeps what its calls needed for the window of its settings
// (10 s) and at most this long.
const sweepEvery = 15 * time.Second

// sweeper gives back the memory of idle origins while the broker runs.
type sweeper struct {
	sweep func(now time.Time)
	stop  chan struct{} // closed by close
	done  chan struct{} // closed by run
}

func newSweeper(sweep func(now time.Time)) *sweeper {
	return &sweeper{sweep: sweep, stop: make(chan struct{}), done: make(chan struct{})}
}

// run sweeps now and then until the sweeper is closed.
func (s *sweeper) run() {
	defer close(s.done)
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-ticker.C:
			s.sweep(now)
		}
	}
}

// close waits for a sweep under way, which takes a few milliseconds.
func (s *sweeper) close() {
	close(s.stop)
	<-s.done
}
