-- Times are text, RFC 3339 in UTC with nine digits: they sort, and a person can read them. Every sum is the SHA-256 that sum.go
-- makes of the other columns. Nothing here is ever undone: a new version of the program adds a file beside this one.

-- +goose Up

-- "Splg": no other program's file is taken for ours, nor a store of policies for a ledger.
PRAGMA application_id = 0x53706c67;

-- The ledger itself, one row. What is in proof opens with the keys that the records were sealed with.
CREATE TABLE ledger (
    one         INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    id          TEXT    NOT NULL,
    create_time TEXT    NOT NULL,
    proof       BLOB    NOT NULL,
    sum         BLOB    NOT NULL CHECK (length(sum) = 32)
) STRICT;

-- request, details and body are sealed (package seal), X'' where there are none. They stand last, so that the others are read
-- without them.
CREATE TABLE operations (
    n               INTEGER NOT NULL PRIMARY KEY,
    caller          TEXT    NOT NULL,
    id              TEXT    NOT NULL,
    hash            INTEGER NOT NULL, -- of caller and id, see operations_by_hash
    epoch           INTEGER NOT NULL,
    owner           TEXT    NOT NULL,
    fingerprint     BLOB    NOT NULL,
    state           INTEGER NOT NULL, -- 1 running, 2 finished, 3 unknown
    must_not_repeat INTEGER NOT NULL,
    outcome         INTEGER NOT NULL,
    effect          INTEGER NOT NULL,
    reason          INTEGER NOT NULL,
    told_outcome    INTEGER NOT NULL,
    told_reason     INTEGER NOT NULL,
    status          INTEGER NOT NULL,
    first_send      TEXT    NOT NULL,
    create_time     TEXT    NOT NULL,
    update_time     TEXT    NOT NULL,
    body_until      TEXT    NOT NULL,
    until           TEXT    NOT NULL,
    body_bytes      INTEGER NOT NULL,
    kept            INTEGER NOT NULL, -- bytes of the body that is here, before it was sealed
    strips          INTEGER NOT NULL, -- 1: something goes at body_until
    sum             BLOB    NOT NULL CHECK (length(sum) = 32),
    request         BLOB    NOT NULL,
    details         BLOB    NOT NULL,
    body            BLOB    NOT NULL
) STRICT;

-- A key is looked for in both before it is said that there is none: no sum tells that an index lacks an entry, and where one was
-- damaged an operation would be sent again.
CREATE UNIQUE INDEX operations_by_key ON operations (caller, id);
CREATE INDEX operations_by_hash ON operations (hash);

-- Lists. Nearly all are finished, so that the others have an index of their own.
CREATE INDEX operations_by_time ON operations (caller, create_time, id);
CREATE INDEX operations_open ON operations (state, caller, create_time, id) WHERE state <> 2;

-- What outlives its time. Nothing goes while it runs.
CREATE INDEX operations_until ON operations (until) WHERE state <> 1;
CREATE INDEX operations_body_until ON operations (body_until) WHERE strips = 1;
CREATE INDEX operations_bodies ON operations (update_time, kept) WHERE kept > 0;
