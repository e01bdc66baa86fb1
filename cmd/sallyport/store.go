package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/sqlite"
)

// storeName is the file of the data directory with what operators wrote.
const storeName = "sallyport.db"

// openStore opens it, and gives the first table of all policies. An audit that was tampered with keeps no call from being made: it is
// told, at every start.
func openStore(ctx context.Context, dir string, rules *ruleset, log *slog.Logger) (*sqlite.Store, *policy.Table, error) {
	store, err := sqlite.Open(ctx, filepath.Join(dir, storeName))
	if err != nil {
		return nil, nil, withLastGood(err, filepath.Join(dir, lastGoodName))
	}
	table, err := rules.open(ctx, store)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close()) //nolint:contextcheck // what is given back is given back in any case
	}
	verifyAudit(ctx, store, log)
	return store, table, nil
}

// withLastGood adds to an error of the store what a broker can be started with instead.
func withLastGood(err error, lastGood string) error {
	if _, statErr := os.Stat(lastGood); statErr != nil {
		return err
	}
	return fmt.Errorf("%w\nthe policies it had are in %s: --data with another directory and --policies with a copy of that file starts a broker with them", err, lastGood)
}

// verifyAudit tells of a chain of records that does not hold.
func verifyAudit(ctx context.Context, store *sqlite.Store, log *slog.Logger) {
	broken, err := store.Verify(ctx)
	switch {
	case err != nil:
		log.Error("the audit cannot be verified", "error", err)
	case broken != 0:
		log.Error("the audit was changed by hand or damaged: this record and those after it prove nothing", "first_broken_record", broken)
	}
}
