package deferred

import (
	"context"
	"sync"
	"time"
)

// places are what bounds the attempts that run at once, and who is left alone.
type places struct {
	atOnce, share int

	mu      sync.Mutex // protects the fields below
	flights map[uint64]*flight
	origins map[string]int     // flights by origin; there are no more than flights
	quiet   map[Lane]time.Time // who refused, until when; what is over is forgotten with the next look
}

// flight is a record that is being worked on.
type flight struct {
	record *Record
	cancel context.CancelCauseFunc
	landed chan struct{} // closed by land
	asked  bool          // somebody has cancelled the call; protected by places.mu
}

func newPlaces(atOnce int) *places {
	return &places{
		atOnce: atOnce, share: max(atOnce/originShare, 1),
		flights: map[uint64]*flight{}, origins: map[string]int{}, quiet: map[Lane]time.Time{},
	}
}

// free is how many may be begun in all.
func (p *places) free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.atOnce - len(p.flights)
}

// answer is what became of asking for a place.
type answer uint8

const (
	taken answer = iota
	// noRoom: its origin has its share, or there is none at all.
	noRoom
	// leftAlone: its lane is quiet, or somebody works on it.
	leftAlone
)

// take takes a place for the record.
func (p *places) take(r *Record, now time.Time) (context.Context, *flight, answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, busy := p.flights[r.Seq]
	switch {
	case busy, now.Before(p.quiet[Lane{r.Caller, r.Origin}]), now.Before(p.quiet[Lane{"", r.Origin}]):
		return nil, nil, leftAlone
	case len(p.flights) >= p.atOnce, p.origins[r.Origin] >= p.share:
		return nil, nil, noRoom
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	f := &flight{record: r, cancel: cancel, landed: make(chan struct{})}
	p.flights[r.Seq] = f
	p.origins[r.Origin]++
	return ctx, f, taken
}

// land gives the place back.
func (p *places) land(f *flight) {
	f.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.flights, f.record.Seq)
	origin := f.record.Origin
	if p.origins[origin]--; p.origins[origin] == 0 {
		delete(p.origins, origin)
	}
	close(f.landed)
}

// leave leaves a lane alone until then.
func (p *places) leave(l Lane, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.quiet[l]) {
		p.quiet[l] = until
	}
}

// look is what a read of the store leaves out: lanes that are quiet or have their share, the latter in full too; and records that are
// worked on. until is when the first of the quiet ones is none any more, zero for never.
func (p *places) look(now time.Time) (without map[Lane]bool, full []string, busy map[uint64]bool, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	without, busy = map[Lane]bool{}, map[uint64]bool{}
	for l, end := range p.quiet {
		if !now.Before(end) {
			delete(p.quiet, l)
			continue
		}
		without[l] = true
		if until.IsZero() || end.Before(until) {
			until = end
		}
	}
	for origin, n := range p.origins {
		if n >= p.share {
			without[Lane{"", origin}] = true
			full = append(full, origin)
		}
	}
	for seq := range p.flights {
		busy[seq] = true
	}
	return without, full, busy, until
}

// anyRoom reports whether one of the origins has less than its share now.
func (p *places) anyRoom(origins []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, origin := range origins {
		if p.origins[origin] < p.share {
			return true
		}
	}
	return false
}

// abort cancels the attempt of a call, and gives what is closed when it has landed; nil: there is none.
func (p *places) abort(caller, id string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.flights {
		if f.record.ID == id && (caller == "" || f.record.Caller == caller) {
			f.asked = true
			f.cancel(errCancelled)
			return f.landed
		}
	}
	return nil
}

func (p *places) cancelAll(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.flights {
		f.cancel(cause)
	}
}

// asked reports whether somebody has cancelled the call.
func (p *places) asked(f *flight) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.asked
}
