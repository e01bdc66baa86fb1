package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/sallyport/sallyport/admin"
)

// Forced implements [admin.BreakerStore].
func (s *Store) Forced(ctx context.Context) ([]admin.Forced, error) {
	return list(ctx, &s.file, scanForced, `
		SELECT origin, open, principal, reason, create_time, expire_time, sum FROM forced_breakers ORDER BY origin`)
}

// WriteForced implements [admin.BreakerStore].
func (s *Store) WriteForced(ctx context.Context, origin string, forced *admin.Forced, record *admin.Record) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM forced_breakers WHERE origin = ?", origin); err != nil {
			return err //nolint:wrapcheck // explained by write
		}
		if forced != nil {
			if err := insertForced(ctx, tx, origin, forced); err != nil {
				return err
			}
		}
		return insertRecord(ctx, tx, record)
	})
}

func insertForced(ctx context.Context, tx *sql.Tx, origin string, f *admin.Forced) error {
	created, err := formatTime(f.CreateTime)
	if err != nil {
		return err
	}
	expires := ""
	if !f.ExpireTime.IsZero() {
		if expires, err = formatTime(f.ExpireTime); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO forced_breakers (origin, open, principal, reason, create_time, expire_time, sum) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		origin, flag(f.Open), f.Principal, f.Reason, created, expires,
		sumOfForced(origin, f.Open, f.Principal, f.Reason, created, expires))
	return err //nolint:wrapcheck // explained by write
}

func scanForced(rows *sql.Rows) (admin.Forced, error) {
	var (
		f                admin.Forced
		created, expires string
		sum              []byte
	)
	if err := rows.Scan(&f.Origin, &f.Open, &f.Principal, &f.Reason, &created, &expires, &sum); err != nil {
		return f, fmt.Errorf("%w: a forced breaker: %w", ErrDamaged, err)
	}
	what := "the forced breaker of " + f.Origin
	if err := same(sum, sumOfForced(f.Origin, f.Open, f.Principal, f.Reason, created, expires), what); err != nil {
		return f, err
	}
	var err error
	if f.CreateTime, err = parseTime(created); err != nil {
		return f, fmt.Errorf("%s: %w", what, err)
	}
	if expires == "" {
		return f, nil
	}
	if f.ExpireTime, err = parseTime(expires); err != nil {
		return f, fmt.Errorf("%s: %w", what, err)
	}
	return f, nil
}

func sumOfForced(origin string, open bool, principal, reason, created, expires string) []byte {
	return sumOf([]byte("forced_breakers"), []byte(origin), number(flag(open)), []byte(principal), []byte(reason),
		[]byte(created), []byte(expires))
}
