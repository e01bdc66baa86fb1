package sqlite_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/store/storetest"
)

func TestWhatWasWrittenStays(t *testing.T) {
	path, s := filled(t)
	want := read(t, s)
	db := raw(t, path)
	for _, statement := range []string{
		"UPDATE audit SET reason = 'none' WHERE id = 3",
		"DELETE FROM audit WHERE id = 3",
		"DELETE FROM audit",
		"REPLACE INTO audit SELECT * FROM audit WHERE id = 3",
		"UPDATE policy_revisions SET document = x'' WHERE revision = 1",
		"DELETE FROM policy_revisions",
		"REPLACE INTO policy_revisions SELECT name, revision, x'', create_time, update_time, sum FROM policy_revisions WHERE revision = 1",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		if err == nil || !strings.Contains(err.Error(), "only added to") && !strings.Contains(err.Error(), "never changes") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if got := read(t, s); !reflect.DeepEqual(got, want) {
		t.Error("something changed")
	}
}

// freed drops what keeps the past as it is, so that a test can change it.
func freed(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := raw(t, path)
	db.SetMaxOpenConns(1)
	var triggers []string
	rows, err := db.QueryContext(t.Context(), "SELECT 'DROP TRIGGER ' || name FROM sqlite_schema WHERE type = 'trigger'")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var drop string
		if err := rows.Scan(&drop); err != nil {
			t.Fatal(err)
		}
		triggers = append(triggers, drop)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	do(t, db, append(triggers, statements...)...)
}

func TestBrokenAuditIsFound(t *testing.T) {
	type tampering struct {
		statement string
		broken    int64
	}
	cases := []tampering{
		{"SELECT 1", 0},
		{"DELETE FROM audit WHERE id = 1", 1},
		{"DELETE FROM audit WHERE id = 5", 5},
		{"DELETE FROM audit WHERE id = 29", 29},
		{"DELETE FROM audit WHERE id > 20", 21},
		{"DELETE FROM audit", 1},
		{"UPDATE audit SET id = 40 WHERE id = 29", 29},
		{"INSERT INTO audit SELECT 30, time, principal, action, target, changes, reason, etag_before, etag_after, sum FROM audit WHERE id = 29", 30},
		{"UPDATE audit SET etag_before = etag_after, etag_after = etag_before WHERE id = 5", 5},
		{"UPDATE audit SET sum = zeroblob(32) WHERE id = 5", 5},
	}
	for _, column := range []string{"time", "principal", "action", "target", "changes", "reason", "etag_before", "etag_after"} {
		cases = append(cases, tampering{fmt.Sprintf("UPDATE audit SET %s = %[1]s || ' ' WHERE id = 5", column), 5})
	}
	for _, c := range cases {
		t.Run(c.statement, func(t *testing.T) {
			path, s := filled(t)
			freed(t, path, c.statement)
			broken, err := s.Verify(t.Context())
			if broken != c.broken || err != nil {
				t.Errorf("the first broken record is %d (%v), want %d", broken, err, c.broken)
			}
			// A record that was changed is not shown.
			if _, err := s.Records(t.Context(), "", "", 0, 100); strings.HasPrefix(c.statement, "UPDATE") && !errors.Is(err, sqlite.ErrDamaged) {
				t.Errorf("the records are read: %v, want ErrDamaged", err)
			}
		})
	}
}

func TestChangedRowsAreNotRead(t *testing.T) {
	for _, statement := range []string{
		"UPDATE policies SET deleted = 1 WHERE name = 'policies/2'",
		"UPDATE policies SET revision = 3 WHERE name = 'policies/2'",
		"UPDATE policies SET name = 'policies/22' WHERE name = 'policies/2'",
		"PRAGMA foreign_keys = 0; DELETE FROM policy_revisions WHERE name = 'policies/2' AND revision = 4",
		"UPDATE policy_revisions SET document = x'00' WHERE name = 'policies/2' AND revision = 4",
		"UPDATE policy_revisions SET create_time = '2026-01-01T00:00:00.000000000Z' WHERE name = 'policies/2' AND revision = 4",
		"UPDATE policy_revisions SET update_time = 'never' WHERE name = 'policies/2' AND revision = 4",
		"UPDATE forced_breakers SET open = 1 - open",
		"UPDATE forced_breakers SET expire_time = create_time",
		"UPDATE forced_breakers SET principal = reason, reason = principal",
		"UPDATE forced_breakers SET origin = 'http' || substr(origin, 6)",
	} {
		t.Run(statement, func(t *testing.T) {
			path, s := filled(t)
			freed(t, path, statement)
			_, err := storetest.Read(t.Context(), s)
			if !errors.Is(err, sqlite.ErrDamaged) {
				t.Errorf("got %v, want ErrDamaged", err)
			}
			sentence(t, err, sqlite.ErrDamaged, path, "put back a backup")
		})
	}
}

func TestRecordAndChangeAreOne(t *testing.T) {
	path, s := filled(t)
	want := read(t, s)
	db := raw(t, path)
	do(t, db, "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END")
	const origin = "https://0.example.com:443"
	deleted := &admin.Stored{Name: "policies/1", Version: admin.Version{Revision: 4, Deleted: true}}
	for what, err := range map[string]error{
		"a new policy":     put(t.Context(), s, "policies/z", 1, 10),
		"an update":        put(t.Context(), s, "policies/1", 5, 10),
		"a deletion":       s.WritePolicy(t.Context(), admin.Version{Revision: 4}, deleted, &admin.Record{}),
		"a forced breaker": s.WriteForced(t.Context(), origin, &admin.Forced{}, &admin.Record{}),
		"one let go":       s.WriteForced(t.Context(), origin, nil, &admin.Record{}),
	} {
		if err == nil || errors.Is(err, admin.ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := read(t, s); !reflect.DeepEqual(got, want) {
		t.Error("something was written without its record")
	}
	do(t, db, "DROP TRIGGER refuse")
	if err := put(t.Context(), s, "policies/z", 1, 10); err != nil {
		t.Error(err)
	}
}
