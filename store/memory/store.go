// Package memory keeps an [admin.Store] and an [operation.Ledger] for as long as the process lives: for tests, and as the plain oracles
// of the others.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/admin"
)

// Store keeps everything ever written; nothing is evicted, since operators alone write here.
type Store struct {
	mu       sync.RWMutex // protects the fields below
	policies map[string]*policy
	forced   map[string]admin.Forced
	records  []admin.Record
}

// policy is a name with all its revisions, the first at index 0.
type policy struct {
	revisions []admin.Stored
	deleted   bool
}

var _ admin.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{policies: map[string]*policy{}, forced: map[string]admin.Forced{}}
}

// Policies implements [admin.PolicyStore].
func (s *Store) Policies(ctx context.Context) ([]admin.Stored, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // it says all there is
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []admin.Stored
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		p := s.policies[name]
		latest := clonePolicy(p.revisions[len(p.revisions)-1])
		latest.Deleted = p.deleted
		all = append(all, latest)
	}
	return all, nil
}

// WritePolicy implements [admin.PolicyStore].
func (s *Store) WritePolicy(ctx context.Context, before admin.Version, next *admin.Stored, record *admin.Record) error {
	if !next.Follows(before) {
		return fmt.Errorf("%s cannot go from revision %d to %d", next.Name, before.Revision, next.Revision)
	}
	if err := storable(next.CreateTime, next.UpdateTime, record.Time); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // it says all there is
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.policies[next.Name]
	if p.version() != before {
		return admin.ErrChanged
	}
	if p == nil {
		p = &policy{}
		s.policies[next.Name] = p
	}
	if next.Revision != before.Revision {
		revision := clonePolicy(*next)
		revision.Deleted = false
		p.revisions = append(p.revisions, revision)
	}
	p.deleted = next.Deleted
	s.recordLocked(record)
	return nil
}

// Revisions implements [admin.PolicyStore].
func (s *Store) Revisions(ctx context.Context, name string, before uint64, n int) ([]admin.Stored, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // it says all there is
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.policies[name]
	if p == nil {
		return nil, nil
	}
	var page []admin.Stored
	for _, r := range slices.Backward(p.revisions) {
		if len(page) >= n {
			break
		}
		if before == 0 || r.Revision < before {
			page = append(page, clonePolicy(r))
		}
	}
	return page, nil
}

// Revision implements [admin.PolicyStore].
func (s *Store) Revision(ctx context.Context, name string, revision uint64) (admin.Stored, error) {
	if err := ctx.Err(); err != nil {
		return admin.Stored{}, err //nolint:wrapcheck // it says all there is
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.policies[name]
	if p == nil || revision == 0 || revision > uint64(len(p.revisions)) {
		return admin.Stored{}, admin.ErrNotFound
	}
	return clonePolicy(p.revisions[revision-1]), nil
}

// Forced implements [admin.BreakerStore].
func (s *Store) Forced(ctx context.Context) ([]admin.Forced, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // it says all there is
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []admin.Forced
	for _, origin := range slices.Sorted(maps.Keys(s.forced)) {
		all = append(all, s.forced[origin])
	}
	return all, nil
}

// WriteForced implements [admin.BreakerStore].
func (s *Store) WriteForced(ctx context.Context, origin string, forced *admin.Forced, record *admin.Record) error {
	times := []time.Time{record.Time}
	if forced != nil {
		times = append(times, forced.CreateTime, forced.ExpireTime)
	}
	if err := storable(times...); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // it says all there is
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if forced == nil {
		delete(s.forced, origin)
	} else {
		f := *forced
		f.Origin, f.CreateTime, f.ExpireTime = origin, plain(f.CreateTime), plain(f.ExpireTime)
		s.forced[origin] = f
	}
	s.recordLocked(record)
	return nil
}

// Records implements [admin.Store].
func (s *Store) Records(ctx context.Context, target, principal string, before int64, n int) ([]admin.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // it says all there is
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var page []admin.Record
	for _, r := range slices.Backward(s.records) {
		if len(page) >= n {
			break
		}
		if (before == 0 || r.ID < before) && (target == "" || r.Target == target) && (principal == "" || r.Principal == principal) {
			r.Changes = slices.Clone(r.Changes)
			page = append(page, r)
		}
	}
	return page, nil
}

func (s *Store) recordLocked(record *admin.Record) {
	r := *record
	r.ID = int64(len(s.records)) + 1
	r.Time = plain(r.Time)
	r.Changes = slices.Clone(r.Changes)
	s.records = append(s.records, r)
}

func (p *policy) version() admin.Version {
	if p == nil {
		return admin.Version{}
	}
	return admin.Version{Revision: uint64(len(p.revisions)), Deleted: p.deleted}
}

func clonePolicy(p admin.Stored) admin.Stored {
	p.Document = bytes.Clone(p.Document)
	p.CreateTime, p.UpdateTime = plain(p.CreateTime), plain(p.UpdateTime)
	return p
}

// plain is t as every store gives it back: in UTC, without the reading of the monotonic clock.
func plain(t time.Time) time.Time { return t.Round(0).UTC() }

// storable refuses the times that no store keeps.
func storable(times ...time.Time) error {
	for _, t := range times {
		if y := t.UTC().Year(); y < 0 || y > 9999 {
			return fmt.Errorf("the time %v cannot be stored: its year is not in 0..9999", t)
		}
	}
	return nil
}
