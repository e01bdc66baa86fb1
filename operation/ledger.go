package operation

import (
	"context"
	"errors"
	"time"
)

// Ledger keeps records for as long as they live. Every method may be called from several goroutines. An error that is none of
// [ErrNotFound] and [ErrSuperseded] means that the ledger cannot be read or written now; of a write it means that nobody knows whether it
// was done. What a write that returned nil wrote is durable. A ctx that had ended before a write began leaves all as it was.
//
// Times are kept to the nanosecond and come back in UTC. What is given is not kept and what comes back is the caller's.
type Ledger interface {
	// Begin leads the operation if nobody has its id, or it is free, in one step: it stores start and returns it with its Epoch, and with
	// CreateTime, FirstSend and Effect of the record that stood there, if one did. Otherwise it changes nothing and returns what stands
	// there. led tells which. Start has Key, Owner, Fingerprint, MustNotRepeat, CreateTime (now), Until and Request; its State is RUNNING.
	// The record's UpdateTime is the CreateTime that start has.
	Begin(ctx context.Context, start *Record) (stands Record, led bool, err error)
	// Write stores what became of a lead in place of what stood there, all of it but CreateTime. It is [ErrSuperseded], and nothing
	// changes, unless the id stands at r.Epoch. A record may be written several times: a late answer comes after the caller's.
	Write(ctx context.Context, r *Record) error
	Reader
}

// Reader reads them.
type Reader interface {
	// Operation gives one record, or [ErrNotFound].
	Operation(ctx context.Context, k Key) (Record, error)
	// Operations lists at most n records of a caller in that state (0: any), the latest CreateTime first and of one instant the
	// greatest id first: those behind the one that the cursor names, its zero value for the first.
	Operations(ctx context.Context, caller string, s State, after Cursor, n int) ([]Record, error)
}

// Cursor is a place in a list.
type Cursor struct {
	CreateTime time.Time
	ID         string
}

// Keeper is what a ledger does beside the calls.
type Keeper interface {
	// Settle ends what an owner other than this one was leading when it ended, at that time: an operation that must not be repeated is
	// UNKNOWN (outcome, effect and what is told: UNKNOWN, REASON_NOT_REPEATABLE; where its caller had got an outcome already, that stays
	// with its effect and reason), any other is FINISHED and its id free, its effect unknown. Those of deferred calls are left alone. It returns
	// how many there were.
	Settle(ctx context.Context, owner string, now time.Time) (int, error)
	// Prune drops what has outlived its time: bodies, details of finished operations, records; bodies also when all of them together
	// are more than mostBodyBytes, the oldest UpdateTime first. It does a bounded piece of that at a time and tells whether more is
	// left. It is no change that UpdateTime tells of.
	Prune(ctx context.Context, now time.Time, mostBodyBytes int64) (more bool, err error)
	// Identity names the ledger, the same for as long as it lives, and says since when it knows.
	Identity() (name string, since time.Time)
}

// The errors of a ledger that are answers.
var (
	// ErrNotFound: the id was never seen, or is long forgotten.
	ErrNotFound = errors.New("no such operation")
	// ErrSuperseded: somebody else leads the id by now.
	ErrSuperseded = errors.New("superseded by another lead")
)
