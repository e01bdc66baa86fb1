package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/sallyport/sallyport/admin"
)

// Policies implements [admin.PolicyStore].
func (s *Store) Policies(ctx context.Context) ([]admin.Stored, error) {
	// A policy whose revision is missing must be seen, so the join keeps it: the NULLs are an error.
	return list(ctx, &s.file, scanPolicy, `
		SELECT p.name, p.revision, p.deleted, p.sum, r.document, r.create_time, r.update_time, r.sum
		FROM policies p LEFT JOIN policy_revisions r ON r.name = p.name AND r.revision = p.revision
		ORDER BY p.name`)
}

// Revisions implements [admin.PolicyStore].
func (s *Store) Revisions(ctx context.Context, name string, before uint64, n int) ([]admin.Stored, error) {
	return list(ctx, &s.file, scanRevision, `
		SELECT name, revision, document, create_time, update_time, sum FROM policy_revisions
		WHERE name = ? AND revision < ? ORDER BY revision DESC LIMIT ?`, name, below(before), atMost(n))
}

// Revision implements [admin.PolicyStore].
func (s *Store) Revision(ctx context.Context, name string, revision uint64) (admin.Stored, error) {
	if revision > math.MaxInt64 {
		return admin.Stored{}, admin.ErrNotFound
	}
	found, err := list(ctx, &s.file, scanRevision, `
		SELECT name, revision, document, create_time, update_time, sum FROM policy_revisions
		WHERE name = ? AND revision = ?`, name, int64(revision))
	switch {
	case err != nil:
		return admin.Stored{}, err
	case len(found) == 0:
		return admin.Stored{}, admin.ErrNotFound
	default:
		return found[0], nil
	}
}

// WritePolicy implements [admin.PolicyStore].
func (s *Store) WritePolicy(ctx context.Context, before admin.Version, next *admin.Stored, record *admin.Record) error {
	if !next.Follows(before) || next.Revision > math.MaxInt64 {
		return fmt.Errorf("%s cannot go from revision %d to %d", next.Name, before.Revision, next.Revision)
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		switch now, err := version(ctx, tx, next.Name); {
		case err != nil:
			return err
		case now != before:
			return admin.ErrChanged
		}
		if next.Revision != before.Revision {
			if err := insertRevision(ctx, tx, next); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO policies (name, revision, deleted, sum) VALUES (?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, deleted = excluded.deleted, sum = excluded.sum`,
			next.Name, signed(next.Revision), flag(next.Deleted), sumOfPolicy(next.Name, next.Version)); err != nil {
			return err //nolint:wrapcheck // explained by write
		}
		return insertRecord(ctx, tx, record)
	})
}

// version is where a policy stands.
func version(ctx context.Context, tx *sql.Tx, name string) (admin.Version, error) {
	var (
		v   admin.Version
		sum []byte
	)
	err := tx.QueryRowContext(ctx, "SELECT revision, deleted, sum FROM policies WHERE name = ?", name).
		Scan(&v.Revision, &v.Deleted, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return admin.Version{}, nil
	}
	if err != nil {
		return admin.Version{}, err //nolint:wrapcheck // explained by write
	}
	return v, same(sum, sumOfPolicy(name, v), name)
}

func insertRevision(ctx context.Context, tx *sql.Tx, p *admin.Stored) error {
	created, err := formatTime(p.CreateTime)
	if err != nil {
		return err
	}
	updated, err := formatTime(p.UpdateTime)
	if err != nil {
		return err
	}
	document := p.Document
	if document == nil {
		document = []byte{} // nil would be NULL
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO policy_revisions (name, revision, document, create_time, update_time, sum) VALUES (?, ?, ?, ?, ?, ?)`,
		p.Name, signed(p.Revision), document, created, updated, sumOfRevision(p.Name, p.Revision, document, created, updated))
	return err //nolint:wrapcheck // explained by write
}

func scanPolicy(rows *sql.Rows) (admin.Stored, error) {
	var (
		p                admin.Stored
		policySum, sum   []byte
		created, updated string
	)
	if err := rows.Scan(&p.Name, &p.Revision, &p.Deleted, &policySum, &p.Document, &created, &updated, &sum); err != nil {
		return p, fmt.Errorf("%w: a policy: %w", ErrDamaged, err)
	}
	if err := same(policySum, sumOfPolicy(p.Name, p.Version), p.Name); err != nil {
		return p, err
	}
	err := finish(&p, created, updated, sum)
	return p, err
}

func scanRevision(rows *sql.Rows) (admin.Stored, error) {
	var (
		p                admin.Stored
		sum              []byte
		created, updated string
	)
	if err := rows.Scan(&p.Name, &p.Revision, &p.Document, &created, &updated, &sum); err != nil {
		return p, fmt.Errorf("%w: a revision: %w", ErrDamaged, err)
	}
	err := finish(&p, created, updated, sum)
	return p, err
}

// finish checks what was read of a revision and sets its times.
func finish(p *admin.Stored, created, updated string, sum []byte) error {
	what := fmt.Sprintf("revision %d of %s", p.Revision, p.Name)
	if err := same(sum, sumOfRevision(p.Name, p.Revision, p.Document, created, updated), what); err != nil {
		return err
	}
	var err error
	if p.CreateTime, err = parseTime(created); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if p.UpdateTime, err = parseTime(updated); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// signed is a revision as SQLite stores it. WritePolicy refuses those it cannot store, and none is read that is less than 0.
func signed(revision uint64) int64 { return int64(revision) } //nolint:gosec // see above

func sumOfPolicy(name string, v admin.Version) []byte {
	return sumOf([]byte("policies"), []byte(name), number(signed(v.Revision)), number(flag(v.Deleted)))
}

func sumOfRevision(name string, revision uint64, document []byte, created, updated string) []byte {
	return sumOf([]byte("policy_revisions"), []byte(name), number(signed(revision)), document, []byte(created), []byte(updated))
}
