package deferred

import (
	"context"
	"errors"
	"time"

	"github.com/sallyport/sallyport/call"
)

// Store keeps records. Every method may be called from several goroutines; what a write that returned nil wrote is on the disk. An error that
// is none of this package means that the store cannot be read or written now; of a write it means that nobody knows whether it was done.
type Store interface {
	// Submit stores a new record and gives it its Seq; or gives the one that stands, with stored false, when the caller has submitted the
	// same OperationID and Fingerprint. It is [ErrConflict] when that id stands for something else: another payload, or a direct call whose
	// outcome is kept or that is under way, unless it is the one that r.Lead names, and then only if it is. Of a free id it
	// takes over what an earlier call may have done: FirstSend, Effect, and that this is Repeatable where the effect is unknown. The id is then
	// the deferred call's in the ledger of operations too, in the same step.
	Submit(ctx context.Context, r *Record) (stands Record, stored bool, err error)
	// Begin writes that an attempt begins, before a byte of it leaves: State SENDING, Epoch one more, Repeatable as given. It is
	// [ErrSuperseded] unless the record stands at that epoch and is PENDING or RETRYING.
	Begin(ctx context.Context, seq, epoch uint64, repeatable bool, now time.Time) error
	// End writes what a record has become, with the attempts that it did not have yet, in one step with what the ledger of operations tells
	// of its id. It is [ErrSuperseded] unless the record stands at r.Epoch and is not finished. Attempts bear their numbers in the log: one
	// that it has is left out, so that the same End twice is as once. Where r.Response is nil, the answer that is kept stays.
	End(ctx context.Context, r *Record, attempts []call.Attempt) error
	// Settle writes what an UNKNOWN record has become by its status probe, COMPLETED, FAILED or RETRYING, in one step with what the ledger of
	// operations tells of its id. It is [ErrSuperseded] unless the record is UNKNOWN and stands at r.Epoch, and [ErrConflict] where its id
	// stands for something else by now. Where r.Response is nil, the answer that is kept stays.
	Settle(ctx context.Context, r *Record) error
	Finder
}

// Finder reads records.
type Finder interface {
	// Due gives records that are PENDING or RETRYING with NextAttempt at or before now, fair between callers and origins: each lane in turn,
	// its most critical and then oldest first, at most n in all; without Attempts and Response. Lanes in without, and records in busy, are
	// left out. next is when the first is due of those that are not due yet and are not left out, zero for never,
	// and for n, of which there may be more now; it is now where there may be though there are less than n.
	Due(ctx context.Context, now time.Time, n int, without map[Lane]bool, busy map[uint64]bool) (due []Record, next time.Time, err error)
	// Find gives one with everything; [ErrNotFound] for another caller's too ("" for any caller).
	Find(ctx context.Context, caller, id string) (Record, error)
	// List gives those a filter picks, the latest first, below Seq before (0: from the latest), at most n; without Attempts' details beyond what
	// a list shows and without bodies.
	List(ctx context.Context, f *Filter, before uint64, n int) ([]Record, error)
	// Counts counts a caller's by state; kept up to date, not counted anew.
	Counts(ctx context.Context, caller string) (map[State]uint64, error)
}

// Keeper is what else a store does.
type Keeper interface {
	// Recover ends what was SENDING when the process before this one ended: what is Repeatable is RETRYING at once, with PossibleDuplicate, all
	// else UNKNOWN; an attempt that tells of it is added: [Orphaned]. It returns how many there were.
	Recover(ctx context.Context, now time.Time) (int, error)
	// Cancel makes a record CANCELLED that is PENDING or RETRYING; [ErrFinished] if it is finished, [ErrSending] if an attempt is under way.
	// until is when it may go.
	Cancel(ctx context.Context, caller, id string, now, until time.Time) (Record, error)
	// Redrive makes FAILED and UNKNOWN records due again, at the rate given from now on: [Record.Redriven]. Named ones that are neither:
	// [ErrState], and none is changed.
	Redrive(ctx context.Context, which *Which, perSecond float64, now time.Time) (uint64, error)
	// Purge deletes finished records. Named ones that are not: [ErrState], and none is deleted.
	Purge(ctx context.Context, which *Which) (uint64, error)
	// Expire makes FAILED/EXPIRED what waits at or beyond its Expire ([Record.Expired]), and deletes what is finished at or beyond its Until: a
	// bounded piece at a time; more: there is more of it now. next is when there will be some, of what there is now; zero for never.
	Expire(ctx context.Context, now time.Time) (next time.Time, more bool, err error)
	// Changes gives records that changed after a position, at most n, in the order of their last change, and the position after them; position
	// 0 with n 0 gives the present one.
	Changes(ctx context.Context, f *Filter, after uint64, n int) (changed []Record, position uint64, err error)
}

// Lane is what waits of one caller for one origin; with no Caller, of all of them.
type Lane struct{ Caller, Origin string }

// Filter picks records; a zero field picks all.
type Filter struct {
	Caller                      string
	State                       State
	Origin                      string
	Labels                      map[string]string // all of them
	CreatedAfter, CreatedBefore time.Time
}

// Which names records of a caller, or picks them.
type Which struct {
	Filter Filter
	// IDs name them; nil: the filter picks them.
	IDs []string
}

// The errors of a store that are answers.
var (
	ErrNotFound   = errors.New("no such deferred call")
	ErrConflict   = errors.New("the operation id stands for something else")
	ErrSuperseded = errors.New("superseded by another attempt")
	ErrFinished   = errors.New("it is finished")
	ErrSending    = errors.New("an attempt is under way")
	ErrState      = errors.New("its state does not allow that")
)
