package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/policy"
)

// ruleset is what the policy file and the secrets directory said last. They are read together: a policy is sound with its secrets
// only, and both go into force as one table, with the policies that operators wrote.
type ruleset struct {
	policies, dir string // paths; "" for none
	generations   atomic.Uint64
	revisions     revisions

	rules   []policy.Rule // of the file
	secrets *egress.Secrets
	all     *admin.Policies // nil until open
}

// loadRuleset reads both.
func loadRuleset(policies, dir string) (*ruleset, error) {
	r := &ruleset{policies: policies, dir: dir, revisions: revisions{}}
	var err error
	if r.secrets, err = loadSecrets(dir); err != nil {
		return nil, err
	}
	rules, err := loadRules(policies, r.secrets)
	if err != nil {
		return nil, err
	}
	r.rules = r.revisions.rise(rules)
	return r, nil
}

// open adds the policies of the store, and gives the first table.
func (r *ruleset) open(ctx context.Context, store admin.PolicyStore) (*policy.Table, error) {
	var table *policy.Table
	var err error
	r.all, table, err = admin.OpenPolicies(ctx, admin.PoliciesConfig{
		Store: store, Parse: broker.ParsePolicyDocument, Generations: &r.generations,
	}, r.rules, r.secrets)
	return table, err
}

// reload reads both again. What is refused stays as it was; where the two do not fit each other, the one that fits the other's old
// form goes into force alone.
func (r *ruleset) reload(log reloadLog) {
	secrets, err := loadSecrets(r.dir)
	if err != nil {
		log.refused("secrets", err)
		secrets = r.secrets
	}
	if err := r.lost(secrets); err != nil {
		log.refused("secrets", err)
		secrets = r.secrets
	}
	rules, err := loadRules(r.policies, secrets)
	if err == nil {
		r.replace(log, rules, secrets)
		return
	}
	if lost := policy.CheckSecrets(r.all.Rules(), secrets); len(lost) == 0 {
		log.refused("policies", err)
		if !secrets.Equal(r.secrets) {
			r.replace(log, r.rules, secrets)
		}
		return
	}
	// The policies in force need a secret that is gone.
	log.refused("secrets", err)
	if rules, err = loadRules(r.policies, r.secrets); err != nil {
		log.refused("policies", err)
		return
	}
	r.replace(log, rules, r.secrets)
}

// lost tells which of the policies that operators wrote need a secret that is gone. No change of the policy file mends that.
func (r *ruleset) lost(secrets *egress.Secrets) error {
	all, _ := r.all.All()
	var rules []policy.Rule
	for i := range all {
		if !all[i].ReadOnly() {
			rules = append(rules, all[i].Rule)
		}
	}
	var errs []error
	for _, p := range policy.CheckSecrets(rules, secrets) {
		errs = append(errs, fmt.Errorf("%s: %s: %s", rules[p.Rule].ID(), p.Path, p.Text))
	}
	return errors.Join(errs...)
}

// replace makes the new table, unless nothing has changed: another one would cost every idle connection.
func (r *ruleset) replace(log reloadLog, rules []policy.Rule, secrets *egress.Secrets) {
	risen := r.revisions.risen(rules)
	same := secrets.Equal(r.secrets)
	if same && reflect.DeepEqual(risen, r.rules) {
		log.sound("policies", "policies and secrets are unchanged")
		return
	}
	// Nobody waits for it but the writes of operators, which are bounded.
	if err := r.all.Replace(context.Background(), risen, secrets); err != nil {
		log.refused("policies", err)
		return
	}
	changed, removed := difference(r.rules, risen)
	r.rules, r.secrets = r.revisions.rise(risen), secrets
	log.sound("policies", "reloaded", "what", "policies and secrets", "policies", len(risen), "changed", strings.Join(changed, " "),
		"removed", strings.Join(removed, " "), "secrets_changed", !same)
}

// revisions are the last content of every policy there ever was, by name, with its revision. The names that are gone are kept, so
// that a revision of a name never means two things in one process.
type revisions map[string]policy.Rule

// risen gives the rules the revisions they would have: that of the same content, or the next one.
func (v revisions) risen(rules []policy.Rule) []policy.Rule {
	out := make([]policy.Rule, len(rules))
	for i := range rules {
		out[i] = rules[i]
		last, known := v[rules[i].Name]
		if !known {
			continue // as it was read: 1
		}
		out[i].Revision = last.Revision
		if !reflect.DeepEqual(out[i], last) {
			out[i].Revision++
		}
	}
	return out
}

// rise notes rules that go into force.
func (v revisions) rise(rules []policy.Rule) []policy.Rule {
	for i := range rules {
		v[rules[i].Name] = rules[i]
	}
	return rules
}

// difference names what is new or changed, with its revision, and what is gone.
func difference(before, after []policy.Rule) (changed, removed []string) {
	old := make(map[string]uint64, len(before))
	for i := range before {
		old[before[i].Name] = before[i].Revision
	}
	for i := range after {
		if revision, ok := old[after[i].Name]; !ok || revision != after[i].Revision {
			changed = append(changed, after[i].ID())
		}
		delete(old, after[i].Name)
	}
	for i := range before {
		if _, gone := old[before[i].Name]; gone {
			removed = append(removed, before[i].Name)
		}
	}
	return changed, removed
}

func loadSecrets(dir string) (*egress.Secrets, error) {
	if dir == "" {
		return new(egress.Secrets), nil
	}
	return egress.LoadSecrets(dir)
}

// loadRules reads the policy file; without one there are no rules. Secrets nil: what policies refer to is not looked at.
func loadRules(path string, secrets policy.Secrets) ([]policy.Rule, error) {
	if path == "" {
		return nil, nil
	}
	if secrets == nil {
		return broker.LoadPolicyFile(path)
	}
	return broker.LoadPolicyFile(path, func(rules []policy.Rule) []policy.Problem { return policy.CheckSecrets(rules, secrets) })
}
