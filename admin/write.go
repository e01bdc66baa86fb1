package admin

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/sallyport/sallyport/policy"
)

// Create makes a policy that is not there. policies/default may be made too: it replaces the built-in one.
func (p *Policies) Create(ctx context.Context, w *Write, d Draft) (Policy, error) {
	return p.write(ctx, w, func(current *Policy) (*Draft, error) {
		if current != nil && current.Rule.Revision > 0 {
			return nil, ErrExists
		}
		return &d, nil
	})
}

// Update makes of a policy what change makes of it.
func (p *Policies) Update(ctx context.Context, w *Write, change func(current *Policy) (Draft, error)) (Policy, error) {
	return p.write(ctx, w, func(current *Policy) (*Draft, error) {
		if err := writable(current, w.Etag); err != nil {
			return nil, err
		}
		d, err := change(current)
		return &d, err
	})
}

// Delete takes a policy out of force. It gives the policy as it was.
func (p *Policies) Delete(ctx context.Context, w *Write) (Policy, error) {
	return p.write(ctx, w, func(current *Policy) (*Draft, error) { return nil, writable(current, w.Etag) })
}

// Rollback makes of a policy, a deleted one too, what it was at a revision.
func (p *Policies) Rollback(ctx context.Context, w *Write, revision uint64) (Policy, error) {
	old, err := p.cfg.Store.Revision(ctx, w.Name, revision)
	if errors.Is(err, ErrNotFound) {
		return Policy{}, p.noRevision(w.Name)
	}
	if err != nil {
		return Policy{}, &StoreError{err}
	}
	rule, err := p.cfg.Parse(old.Document)
	if err != nil {
		return Policy{}, &StoreError{err}
	}
	return p.write(ctx, w, func(current *Policy) (*Draft, error) {
		if current != nil && current.Rule.Revision == 0 {
			current = nil // what is built in gives way, as it does to Create
		}
		if current == nil && w.Etag != "" {
			return nil, ErrEtag
		}
		if current != nil {
			if err := writable(current, w.Etag); err != nil {
				return nil, err
			}
		}
		return &Draft{Rule: rule, Document: old.Document}, nil
	})
}

// noRevision is why a revision is not in the store: policies of files have none there.
func (p *Policies) noRevision(name string) error {
	if current, err := p.Get(name); err == nil && current.ReadOnly() {
		return ErrReadOnly
	}
	return ErrNotFound
}

// writable tells why a policy cannot be changed.
func writable(current *Policy, etag string) error {
	switch {
	case current == nil:
		return ErrNotFound
	case current.ReadOnly():
		return ErrReadOnly
	case etag != "" && etag != current.Etag:
		return ErrEtag
	}
	return nil
}

// write decides what a policy is to be while nobody else writes, checks it with all others, stores it, and puts it in force. decide
// gets the policy that stands, nil for none, and gives nil to delete it.
func (p *Policies) write(ctx context.Context, w *Write, decide func(current *Policy) (*Draft, error)) (Policy, error) {
	if err := p.begin(ctx); err != nil {
		return Policy{}, err
	}
	defer p.end()
	if err := p.refresh(ctx); err != nil {
		return Policy{}, err
	}
	var current *Policy
	if c, err := p.Get(w.Name); err == nil {
		current = &c
	}
	d, err := decide(current)
	if err != nil {
		return Policy{}, err
	}
	if d != nil && current != nil && !current.ReadOnly() && same(&current.Rule, &d.Rule) {
		return *current, nil
	}
	return p.carryOut(ctx, w, current, d)
}

// carryOut makes a draft the policy's next revision, or deletes it.
func (p *Policies) carryOut(ctx context.Context, w *Write, current *Policy, d *Draft) (Policy, error) {
	before, next := p.stored[w.Name], p.next(w.Name, d)
	stored, rules := maps.Clone(p.stored), maps.Clone(p.rules)
	stored[w.Name] = next
	delete(rules, w.Name)
	result := current
	if d != nil {
		rule := d.Rule
		rule.Name, rule.Revision = w.Name, next.Revision
		rules[w.Name] = rule
		made := policyOf(&next, rule)
		result = &made
	}
	table, all, err := p.compile(p.file, p.secrets, stored, rules)
	if err != nil {
		return Policy{}, own(err, all, w.Name)
	}
	if w.ValidateOnly {
		return *result, nil
	}
	if err := p.store(ctx, before.Version, &next, record(w, current, result, d)); err != nil {
		// Nobody knows whether it was done, so that the store is asked: what a restart would find is to be in force, and to be answered.
		if p.refresh(context.WithoutCancel(ctx)) == nil && p.has(&next) {
			return *result, nil
		}
		return Policy{}, err
	}
	p.stored, p.rules = stored, rules
	p.install(p.file, p.secrets, table, all)
	return *result, nil
}

// next is what the store is to have.
func (p *Policies) next(name string, d *Draft) Stored {
	now := time.Now().UTC()
	s := p.stored[name]
	if d == nil {
		s.Deleted, s.UpdateTime = true, now
		return s
	}
	if s.Revision == 0 || s.Deleted {
		s.CreateTime = now
	}
	return Stored{
		Name: name, Version: Version{Revision: s.Revision + 1}, Document: d.Document, CreateTime: s.CreateTime, UpdateTime: now,
	}
}

// has tells whether the store had that very write when it was read last.
func (p *Policies) has(next *Stored) bool {
	s := p.stored[next.Name]
	return s.Version == next.Version && (next.Deleted || s.UpdateTime.Equal(next.UpdateTime) && bytes.Equal(s.Document, next.Document))
}

// store writes. An error leaves open what the store has.
func (p *Policies) store(ctx context.Context, before Version, next *Stored, r *Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	err := p.cfg.Store.WritePolicy(ctx, before, next, r)
	if err == nil {
		return nil
	}
	p.stale = true
	if errors.Is(err, ErrChanged) {
		return ErrEtag // by another broker, or by the write that nobody knew of
	}
	return &StoreError{err}
}

// refresh reads the store again after a write that failed, and puts in force what it finds. Where it cannot be read, the next write tries.
func (p *Policies) refresh(ctx context.Context) error {
	if !p.stale {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	was, rules := p.stored, p.rules
	if err := p.read(ctx); err != nil {
		return err
	}
	if !maps.EqualFunc(was, p.stored, func(a, b Stored) bool { return a.Version == b.Version }) {
		table, all, err := p.compile(p.file, p.secrets, p.stored, p.rules)
		if err != nil {
			p.stored, p.rules = was, rules
			return &StoreError{named(err, all)}
		}
		p.install(p.file, p.secrets, table, all)
	}
	p.stale = false
	return nil
}

// record tells of a write.
func record(w *Write, before, after *Policy, d *Draft) *Record {
	r := &Record{Time: time.Now().UTC(), Principal: w.Principal, Action: w.Action, Target: w.Name, Reason: w.Reason}
	var was, is *policy.Rule
	if before != nil && !before.ReadOnly() {
		was, r.EtagBefore = &before.Rule, before.Etag
	}
	if d != nil {
		is, r.EtagAfter = &after.Rule, after.Etag
	}
	for _, c := range policy.Changes(was, is) {
		r.Changes = append(r.Changes, Change(c))
	}
	return r
}

// same compares what two rules say.
func same(a, b *policy.Rule) bool {
	x, y := *a, *b
	x.Revision, y.Revision = 0, 0
	x.Name, y.Name = "", ""
	return reflect.DeepEqual(x, y)
}

// own keeps the problems of the policy that is written, as those of the only rule there is.
func own(err error, rules []policy.Rule, name string) error {
	invalid, ok := errors.AsType[*policy.InvalidError](err)
	if !ok {
		return err
	}
	at := slices.IndexFunc(rules, func(r policy.Rule) bool { return r.Name == name })
	mine := &policy.InvalidError{}
	for _, problem := range invalid.Problems {
		if problem.Rule == at {
			problem.Rule = 0
			mine.Problems = append(mine.Problems, problem)
		}
	}
	if len(mine.Problems) == 0 {
		return named(err, rules) // a secret of another policy is gone, and not yet noticed
	}
	return mine
}
