package admin

import (
	"context"
	"errors"
	"time"
)

// Store keeps what operators wrote. Every method may be called from several goroutines. An error that is neither [ErrChanged] nor
// [ErrNotFound] means that the store cannot be read or written now; of a write it means that nobody knows whether it was done. A
// write that returned nil is there for good. A ctx that had ended before a write began leaves all as it was.
//
// Text is UTF-8. Times are kept to the nanosecond, of years 0 to 9999, and come back in UTC. What is given is not kept and what
// comes back is the caller's: neither shares memory with the store.
type Store interface {
	PolicyStore
	BreakerStore
	// Records lists the audit, the latest first: those of a target and a principal, each "" for all, whose ID is less than before (0:
	// from the latest), at most n.
	Records(ctx context.Context, target, principal string, before int64, n int) ([]Record, error)
}

// PolicyStore keeps policies and all their revisions.
type PolicyStore interface {
	// Policies gives every policy there ever was in its latest revision, the deleted ones too, by name.
	Policies(ctx context.Context) ([]Stored, error)
	// WritePolicy stores next and the record, both or neither. It is [ErrChanged] unless the policy stands exactly as before: at that
	// revision, deleted or not; the zero Version is a name that never was. A next of the same revision only changes Deleted; one of
	// the next revision is kept for ever. Any other next is a mistake of the caller, see [Version.Follows], and changes nothing.
	WritePolicy(ctx context.Context, before Version, next *Stored, record *Record) error
	// Revisions lists what a policy once was, the latest first: those less than before (0: from the latest), at most n. None is no
	// error. Deleted is false in all of them.
	Revisions(ctx context.Context, name string, before uint64, n int) ([]Stored, error)
	// Revision gives one of them, or [ErrNotFound].
	Revision(ctx context.Context, name string, revision uint64) (Stored, error)
}

// BreakerStore keeps the breakers that are forced.
type BreakerStore interface {
	// Forced gives them all, those whose time is over too, by origin.
	Forced(ctx context.Context) ([]Forced, error)
	// WriteForced stores what an operator said of an origin in place of what stood there, or removes it (forced nil), and the record,
	// both or neither.
	WriteForced(ctx context.Context, origin string, forced *Forced, record *Record) error
}

// The errors of a store that are answers.
var (
	// ErrChanged: somebody else has written meanwhile.
	ErrChanged = errors.New("changed meanwhile")
	// ErrNotFound: there is no such thing.
	ErrNotFound = errors.New("not found")
)

// Version is where a policy stands.
type Version struct {
	// Revision counts the writes of a name, from 1; it never goes back, not even over a deletion.
	Revision uint64
	// Deleted: it is gone. Its revisions are kept.
	Deleted bool
}

// Follows reports whether a policy that stands at before may be written to stand at v: at the same revision, deleted or not, or at
// the next one.
func (v Version) Follows(before Version) bool {
	return v.Revision == before.Revision+1 || v.Revision == before.Revision && v.Revision > 0
}

// Stored is one revision of a policy as it was written.
type Stored struct {
	// Name is policies/{id}.
	Name string
	Version
	// Document says what the policy is, in a form that the store does not read.
	Document []byte
	// CreateTime is when the name was created, or created again after a deletion; UpdateTime when this revision was written.
	CreateTime, UpdateTime time.Time
}

// Forced is what an operator said of the breakers of an origin.
type Forced struct {
	// Origin is scheme://host:port.
	Origin string
	// Open: attempts are refused; else they pass.
	Open bool
	// Principal said it, Reason is why.
	Principal, Reason string
	// CreateTime is when, ExpireTime when it ends by itself; zero: never.
	CreateTime, ExpireTime time.Time
}

// Record tells of one write.
type Record struct {
	// ID rises with every record, from 1; the store gives it and does not read it.
	ID   int64
	Time time.Time
	// Principal is the authenticated identity, Action the RPC, Target a policy's name or an origin.
	Principal, Action, Target string
	// Changes are field by field.
	Changes []Change
	// Reason is the principal's.
	Reason string
	// EtagBefore and EtagAfter are "" for what was not there.
	EtagBefore, EtagAfter string
}

// Change is one field before and after, as a person reads it; "" for none. It tells no secret.
type Change struct {
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}
