package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql migrations/ledger/*.sql
var migrations embed.FS

// check refuses what is not ours or is damaged. It is the whole check and not the quick one, which leaves out whether an index fits
// its table: a page of revisions would lack some, and no sum would tell. What is inside a value only the sums know.
func check(ctx context.Context, db *sql.DB, path string, of *schema) error {
	var id int64
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return err //nolint:wrapcheck // explained by Open
	}
	if id != of.application {
		return fmt.Errorf("%w: it is not a %s of Sallyport (application id %#x)", ErrDamaged, of.noun, id)
	}
	// What is in the log beside the file is not counted: a log is of a bounded size.
	if info, err := os.Stat(path); err != nil || info.Size() > of.checkedBytes {
		return err //nolint:wrapcheck // explained by open
	}
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&found); err != nil {
		return err //nolint:wrapcheck // explained by Open
	}
	if found != "ok" {
		return fmt.Errorf("%w: %s", ErrDamaged, strings.Join(strings.Fields(found), " "))
	}
	return nil
}

// migrate brings the tables to the version of this program.
func migrate(ctx context.Context, db *sql.DB, of *schema) error {
	files, err := fs.Sub(migrations, of.directory)
	if err != nil {
		return err //nolint:wrapcheck // cannot happen
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	current, known, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if current > known {
		return fmt.Errorf("%w: its tables are of version %d, this program knows %d", ErrNewer, current, known)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return nil
}
