package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/policy"
)

// The errors of a write, beside those of the policy itself ([*policy.InvalidError]) and of the store ([*StoreError]).
var (
	// ErrExists: there is a policy of that name.
	ErrExists = errors.New("exists")
	// ErrReadOnly: the policy comes from a file, or is built in.
	ErrReadOnly = errors.New("read-only")
	// ErrEtag: the policy is not what it was when the etag was read.
	ErrEtag = errors.New("etag mismatch")
)

// StoreError says that the store could not be read or written. Nothing that is in force has changed.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "store: " + e.Err.Error() }

// Unwrap gives the store's own error.
func (e *StoreError) Unwrap() error { return e.Err }

// Policy is one policy as it stands, or stood.
type Policy struct {
	Rule policy.Rule
	// Document is what the store keeps of it; nil for one that no store has.
	Document []byte
	// CreateTime and UpdateTime are zero for one that no store has.
	CreateTime, UpdateTime time.Time
	// Etag is another one after every write.
	Etag string
}

// ReadOnly tells whether it comes from a file or is built in.
func (p *Policy) ReadOnly() bool { return p.Document == nil }

// Draft is what a policy is to be. The revision of the rule does not count.
type Draft struct {
	Rule     policy.Rule
	Document []byte
}

// Write says who writes what, and why.
type Write struct {
	// Name is policies/{id}.
	Name string
	// Etag must be that of the policy; "" is any.
	Etag string
	// Principal is the authenticated identity, Action the RPC, Reason what the principal says.
	Principal, Action, Reason string
	// ValidateOnly checks everything and writes nothing.
	ValidateOnly bool
}

// PoliciesConfig is what policies are kept with.
type PoliciesConfig struct {
	Store PolicyStore
	// Parse reads a document of the store.
	Parse func(document []byte) (policy.Rule, error)
	// Generations counts the tables of the process.
	Generations *atomic.Uint64
}

// Policies are those in force: of the files the broker was started with, and of the store. A name that both have is the file's.
type Policies struct {
	cfg     PoliciesConfig
	enforce func(*policy.Table, []policy.Rule)
	writing chan struct{} // holds one value while somebody writes: whoever waits for it can give up

	// Only who writes touches these.
	stored map[string]Stored // every name there ever was in the store
	rules  map[string]policy.Rule
	stale  bool // a write failed, and nobody knows whether it was done

	mu      sync.RWMutex // protects the fields below
	file    []policy.Rule
	secrets policy.Secrets
	list    []Policy // all of them by name, policies/default always among them
	changed chan struct{}
}

// storeTime bounds one write of the store. It goes on when its caller goes away: half a write is known by nobody.
const storeTime = 10 * time.Second

// OpenPolicies reads the store, and gives the first table of its policies and those of the files.
func OpenPolicies(ctx context.Context, cfg PoliciesConfig, file []policy.Rule, secrets policy.Secrets) (*Policies, *policy.Table, error) {
	p := &Policies{cfg: cfg, enforce: func(*policy.Table, []policy.Rule) {}, writing: make(chan struct{}, 1), changed: make(chan struct{})}
	if err := p.read(ctx); err != nil {
		return nil, nil, err
	}
	table, next, err := p.compile(file, secrets, p.stored, p.rules)
	if err != nil {
		return nil, nil, named(err, next)
	}
	p.file, p.secrets, p.list = file, secrets, p.listed(file, p.stored, p.rules)
	return p, table, nil
}

// Enforce has every new table put in force by f, one after the other. It is said before the first write.
func (p *Policies) Enforce(f func(*policy.Table, []policy.Rule)) { p.enforce = f }

// All gives the policies by name, and a channel that is closed when they are no longer all. The slice is shared.
func (p *Policies) All() ([]Policy, <-chan struct{}) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.list, p.changed
}

// Get gives a policy, or [ErrNotFound].
func (p *Policies) Get(name string) (Policy, error) {
	all, _ := p.All()
	if i, ok := slices.BinarySearchFunc(all, name, byName); ok {
		return all[i], nil
	}
	return Policy{}, ErrNotFound
}

// Rules are those in force.
func (p *Policies) Rules() []policy.Rule {
	all, _ := p.All()
	rules := make([]policy.Rule, 0, len(all))
	for i := range all {
		if all[i].Rule.Revision > 0 {
			rules = append(rules, all[i].Rule)
		}
	}
	return rules
}

// Revisions lists what a policy once was, the latest first: those less than before (0: from the latest), at most n.
func (p *Policies) Revisions(ctx context.Context, name string, before uint64, n int) ([]Policy, error) {
	stored, err := p.cfg.Store.Revisions(ctx, name, before, n)
	if err != nil {
		return nil, &StoreError{err}
	}
	out := make([]Policy, len(stored))
	for i := range stored {
		rule, err := p.cfg.Parse(stored[i].Document)
		if err != nil {
			return nil, &StoreError{err}
		}
		out[i] = policyOf(&stored[i], rule)
	}
	return out, nil
}

// Replace puts the policies of files, and secrets, in force in place of those that were.
func (p *Policies) Replace(ctx context.Context, file []policy.Rule, secrets policy.Secrets) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	defer p.end()
	table, rules, err := p.compile(file, secrets, p.stored, p.rules)
	if err != nil {
		return named(err, rules)
	}
	p.install(file, secrets, table, rules)
	return nil
}

// begin waits until nobody else writes.
func (p *Policies) begin(ctx context.Context) error {
	select {
	case p.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller knows what it waited for
	}
}

func (p *Policies) end() { <-p.writing }

// read takes what the store has.
func (p *Policies) read(ctx context.Context) error {
	all, err := p.cfg.Store.Policies(ctx)
	if err != nil {
		return &StoreError{err}
	}
	stored, rules := make(map[string]Stored, len(all)), make(map[string]policy.Rule, len(all))
	for i := range all {
		s := &all[i]
		stored[s.Name] = *s
		if s.Deleted {
			continue
		}
		rule, err := p.cfg.Parse(s.Document)
		if err != nil {
			return &StoreError{fmt.Errorf("%s@%d: %w", s.Name, s.Revision, err)}
		}
		rule.Name, rule.Revision = s.Name, s.Revision
		rules[s.Name] = rule
	}
	p.stored, p.rules = stored, rules
	return nil
}

// compile makes a table of all rules together: those of files first, then those of the store by name.
func (p *Policies) compile(file []policy.Rule, secrets policy.Secrets, stored map[string]Stored, parsed map[string]policy.Rule) (*policy.Table, []policy.Rule, error) {
	rules, hidden := slices.Clone(file), names(file)
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		if !stored[name].Deleted && !hidden[name] {
			rules = append(rules, parsed[name])
		}
	}
	table, err := policy.Compile(rules, policy.Options{Generations: p.cfg.Generations, Secrets: secrets})
	if err != nil {
		return nil, rules, err
	}
	return table, rules, nil
}

// install puts a table in force. Only who writes calls it, so that tables follow each other.
func (p *Policies) install(file []policy.Rule, secrets policy.Secrets, table *policy.Table, rules []policy.Rule) {
	list := p.listed(file, p.stored, p.rules)
	p.enforce(table, rules)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.file, p.secrets, p.list = file, secrets, list
	close(p.changed)
	p.changed = make(chan struct{})
}

// listed gives all policies by name.
func (p *Policies) listed(file []policy.Rule, stored map[string]Stored, parsed map[string]policy.Rule) []Policy {
	var all []Policy
	hidden := names(file)
	for i := range file {
		all = append(all, Policy{Rule: file[i], Etag: etag("file", file[i].Name, file[i].Revision)})
	}
	for name, rule := range parsed {
		if s := stored[name]; !s.Deleted && !hidden[name] {
			all = append(all, policyOf(&s, rule))
		}
	}
	if !slices.ContainsFunc(all, func(q Policy) bool { return q.Rule.Name == policy.DefaultName }) {
		all = append(all, Policy{Rule: policy.Builtin(), Etag: etag("built in", policy.DefaultName, 0)})
	}
	slices.SortFunc(all, func(a, b Policy) int { return strings.Compare(a.Rule.Name, b.Rule.Name) })
	return all
}

func policyOf(s *Stored, rule policy.Rule) Policy {
	rule.Name, rule.Revision = s.Name, s.Revision
	return Policy{Rule: rule, Document: s.Document, CreateTime: s.CreateTime, UpdateTime: s.UpdateTime, Etag: etag("store", s.Name, s.Revision)}
}

// etag names one revision. A revision of a name in the store never means two things.
func etag(source, name string, revision uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s@%d", source, name, revision))
	return hex.EncodeToString(sum[:8])
}

func byName(p Policy, name string) int { return strings.Compare(p.Rule.Name, name) }

func names(rules []policy.Rule) map[string]bool {
	all := make(map[string]bool, len(rules))
	for i := range rules {
		all[rules[i].Name] = true
	}
	return all
}

// named writes an error about rules with their names, which say more than their places in a list that nobody wrote.
func named(err error, rules []policy.Rule) error {
	invalid, ok := errors.AsType[*policy.InvalidError](err)
	if !ok {
		return err
	}
	lines := make([]string, len(invalid.Problems))
	for i, problem := range invalid.Problems {
		lines[i] = fmt.Sprintf("%s: %s: %s", rules[problem.Rule].ID(), problem.Path, problem.Text)
	}
	return errors.New(strings.Join(lines, "\n"))
}
