package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/operation"
)

// finder finds one operation.
type finder struct{ byKey, byHash *sql.Stmt }

func newFinder(ctx context.Context, db *sql.DB) (finder, error) {
	byKey, err := db.PrepareContext(ctx,
		"SELECT "+rowColumns+" FROM operations INDEXED BY operations_by_key WHERE caller = ? AND id = ?")
	if err != nil {
		return finder{}, err //nolint:wrapcheck // explained by OpenLedger
	}
	byHash, err := db.PrepareContext(ctx, "SELECT caller, id FROM operations INDEXED BY operations_by_hash WHERE hash = ?")
	return finder{byKey: byKey, byHash: byHash}, err //nolint:wrapcheck // as above
}

func (f finder) close() error {
	var err error
	for _, s := range []*sql.Stmt{f.byKey, f.byHash} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// in is the finder within a transaction, which closes it.
func (f finder) in(ctx context.Context, tx *sql.Tx) finder {
	return finder{byKey: tx.StmtContext(ctx, f.byKey), byHash: tx.StmtContext(ctx, f.byHash)}
}

// find looks for the operation of a key. That there is none is said by two indexes: where one says that there is, it is [ErrDamaged].
func (f finder) find(ctx context.Context, k operation.Key) (r row, found bool, err error) {
	all, err := rowsOf(ctx, f.byKey, scanOperation, k.Caller, k.ID)
	if err != nil {
		return row{}, false, err
	}
	if len(all) > 0 {
		if r = all[0]; r.Key != k {
			return row{}, false, fmt.Errorf("%w: instead of operation %q of %q there is another", ErrDamaged, k.ID, k.Caller)
		}
		return r, true, nil
	}
	keys, err := rowsOf(ctx, f.byHash, func(rows *sql.Rows) (k operation.Key, err error) {
		if err = rows.Scan(&k.Caller, &k.ID); err != nil {
			err = fmt.Errorf("%w: an operation: %w", ErrDamaged, err)
		}
		return k, err
	}, hashOf(k))
	if err != nil {
		return row{}, false, err
	}
	// Two keys may have one hash, once in a very long time. Another key than this one is more likely one that was damaged.
	for _, other := range keys {
		if other == k || hashOf(other) != hashOf(k) {
			return row{}, false, fmt.Errorf("%w: an index does not know operation %q of %q", ErrDamaged, k.ID, k.Caller)
		}
	}
	return row{}, false, nil
}

func rowsOf[T any](ctx context.Context, s *sql.Stmt, scan func(*sql.Rows) (T, error), args ...any) ([]T, error) {
	rows, err := s.QueryContext(ctx, args...)
	return gather(rows, err, scan)
}
