package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

// inputs are the files that `serve` is told of, read and checked.
type inputs struct {
	rules       *ruleset
	identities  *broker.Identities
	certificate *keyPair
	authorities *broker.Authorities
	observer    *tracing.Observer
}

// loadInputs reads every file before anything listens: a broker that starts is a broker whose files are sound.
func loadInputs(ctx context.Context, s *settings, log *slog.Logger) (*inputs, error) {
	in := &inputs{certificate: &keyPair{cert: s.TLSCert, key: s.TLSKey}}
	var err error
	if s.Tokens != "" {
		if in.identities, err = broker.LoadTokens(s.Tokens, s.proofs()); err != nil {
			return nil, err
		}
	}
	if s.TLSCert != "" {
		if err := in.certificate.load(); err != nil {
			return nil, err
		}
	}
	if s.ClientCA != "" {
		if in.authorities, err = broker.LoadAuthorities(s.ClientCA); err != nil {
			return nil, err
		}
	}
	if in.rules, err = loadRuleset(s.Policies, s.Secrets); err != nil {
		return nil, err
	}
	// The one global of a library that is set: its logger would print OTEL_* values, which may be secrets, on standard error, and New
	// tells by itself what is wrong with them and which spans are lost.
	otel.SetLogger(logr.Discard())
	if in.observer, err = tracing.New(ctx, os.LookupEnv, programVersion(), log); err != nil {
		return nil, err
	}
	return in, nil
}

// loadPolicies reads and compiles a policy file to look at; without one the table has the built-in policy alone.
func loadPolicies(path string) ([]policy.Rule, *policy.Table, error) {
	rules, err := loadRules(path, nil)
	if err != nil {
		return nil, nil, err
	}
	table, err := compileRules(path, rules, policy.Options{Generations: new(atomic.Uint64)})
	return rules, table, err
}

func compileRules(path string, rules []policy.Rule, opt policy.Options) (*policy.Table, error) {
	table, err := policy.Compile(rules, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return table, nil
}
