package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

// inputs are the files that `serve` is told of, read and checked.
type inputs struct {
	rules      []policy.Rule
	table      *policy.Table
	identities *broker.Identities
	secrets    *egress.Secrets
	tls        *tls.Config // nil: cleartext
	observer   *tracing.Observer
}

// loadInputs reads every file before anything listens: a broker that starts is a broker whose files are sound.
func loadInputs(ctx context.Context, s *settings) (*inputs, error) {
	in := &inputs{}
	var err error
	if s.Tokens != "" {
		if in.identities, err = broker.LoadTokens(s.Tokens); err != nil {
			return nil, err
		}
	}
	if s.Secrets != "" {
		if in.secrets, err = egress.LoadSecrets(s.Secrets); err != nil {
			return nil, err
		}
	}
	if s.TLSCert != "" {
		if in.tls, err = serverTLS(s.TLSCert, s.TLSKey); err != nil {
			return nil, err
		}
	}
	if in.rules, in.table, err = loadPolicies(s.Policies); err != nil {
		return nil, err
	}
	if err := checkCredentials(s.Policies, in.rules, in.secrets); err != nil {
		return nil, err
	}
	if in.observer, err = tracing.New(ctx, os.LookupEnv, programVersion()); err != nil {
		return nil, err
	}
	return in, nil
}

// loadPolicies reads and compiles a policy file; without one the table has the built-in policy alone.
func loadPolicies(path string) ([]policy.Rule, *policy.Table, error) {
	var rules []policy.Rule
	if path != "" {
		var err error
		if rules, err = broker.LoadPolicyFile(path); err != nil {
			return nil, nil, err
		}
	}
	table, err := policy.Compile(rules, policy.Options{Generations: new(atomic.Uint64)})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return rules, table, nil
}

// checkCredentials refuses a policy whose secret is not there: its calls would go out without it.
func checkCredentials(path string, rules []policy.Rule, secrets *egress.Secrets) error {
	var all []error
	for i := range rules {
		for j := range rules[i].Credentials {
			if err := secrets.Check(&rules[i].Credentials[j]); err != nil {
				all = append(all, fmt.Errorf("%s: policies[%d].credentials[%d].secret: %w", path, i, j, err))
			}
		}
	}
	return errors.Join(all...)
}

func serverTLS(cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls-cert %s, tls-key %s: %w", cert, key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
