-- Times are text, RFC 3339 in UTC with nine digits: they sort, and a person can read them. Every sum is the SHA-256 that sum.go
-- makes of the other columns. Nothing here is ever undone: a new version of the program adds a file beside this one.

-- +goose Up

-- "Sprt": no other program's file is taken for ours.
PRAGMA application_id = 0x53707274;

CREATE TABLE policy_revisions (
    name        TEXT    NOT NULL,
    revision    INTEGER NOT NULL CHECK (revision > 0),
    document    BLOB    NOT NULL,
    create_time TEXT    NOT NULL,
    update_time TEXT    NOT NULL,
    sum         BLOB    NOT NULL CHECK (length(sum) = 32),
    PRIMARY KEY (name, revision)
) STRICT;

CREATE TABLE policies (
    name     TEXT    NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,
    deleted  INTEGER NOT NULL CHECK (deleted IN (0, 1)),
    sum      BLOB    NOT NULL CHECK (length(sum) = 32),
    FOREIGN KEY (name, revision) REFERENCES policy_revisions (name, revision)
) STRICT;

CREATE TABLE forced_breakers (
    origin      TEXT    NOT NULL PRIMARY KEY,
    open        INTEGER NOT NULL CHECK (open IN (0, 1)),
    principal   TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    create_time TEXT    NOT NULL,
    expire_time TEXT    NOT NULL, -- '' for never
    sum         BLOB    NOT NULL CHECK (length(sum) = 32)
) STRICT;

-- AUTOINCREMENT keeps the greatest id there ever was, so that a chain cut off at its end is seen.
CREATE TABLE audit (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    time        TEXT NOT NULL,
    principal   TEXT NOT NULL,
    action      TEXT NOT NULL,
    target      TEXT NOT NULL,
    changes     TEXT NOT NULL, -- JSON, '' for none
    reason      TEXT NOT NULL,
    etag_before TEXT NOT NULL,
    etag_after  TEXT NOT NULL,
    sum         BLOB NOT NULL CHECK (length(sum) = 32)
) STRICT;

CREATE INDEX audit_of_target ON audit (target, id);
CREATE INDEX audit_of_principal ON audit (principal, id);

-- What was written stays as it was. The triggers before an insert keep REPLACE out, which deletes without being asked.

-- +goose StatementBegin
CREATE TRIGGER audit_update BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_delete BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_insert BEFORE INSERT ON audit
WHEN NEW.id <= (SELECT max(id) FROM audit)
BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_revisions_update BEFORE UPDATE ON policy_revisions
BEGIN SELECT RAISE(ABORT, 'a revision never changes'); END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_revisions_delete BEFORE DELETE ON policy_revisions
BEGIN SELECT RAISE(ABORT, 'a revision never changes'); END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER policy_revisions_insert BEFORE INSERT ON policy_revisions
WHEN EXISTS (SELECT 1 FROM policy_revisions WHERE name = NEW.name AND revision = NEW.revision)
BEGIN SELECT RAISE(ABORT, 'a revision never changes'); END;
-- +goose StatementEnd
