-- Deferred calls. They live beside the operations, since both share one namespace of ids, and an id changes hands in one step. A time that
-- is none is ''.

-- +goose Up

-- The deferred call that the id is or was for last. A sum has it only where there is one, so that older rows keep theirs.
ALTER TABLE operations ADD COLUMN deferred TEXT NOT NULL DEFAULT '';

-- What a start of the broker leads, and the next one settles: not those of deferred calls, of which a million may wait.
CREATE INDEX operations_led ON operations (owner) WHERE state = 1 AND deferred = '';

-- The last change there was: it outlives the row that had it.
CREATE TABLE changes (
    one  INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
) STRICT;
INSERT INTO changes (one, last) VALUES (1, 0);

-- A lane is a caller at an origin. next is when the first of its calls is due, '' when none waits: what is due is found by way of the lanes
-- that have something due, however many others wait.
CREATE TABLE lanes (
    n      INTEGER NOT NULL PRIMARY KEY,
    caller TEXT    NOT NULL,
    origin TEXT    NOT NULL,
    next   TEXT    NOT NULL
) STRICT;
CREATE UNIQUE INDEX lanes_by_name ON lanes (caller, origin);
CREATE INDEX lanes_by_next ON lanes (next) WHERE next <> '';

-- How many calls there are, so that nobody counts them.
CREATE TABLE counts (
    caller TEXT    NOT NULL,
    state  INTEGER NOT NULL,
    calls  INTEGER NOT NULL,
    PRIMARY KEY (caller, state)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a number is never given twice, also when the last call was purged. What is large or secret is in the tables behind it;
-- tags has what vouches for it.
CREATE TABLE calls (
    seq                INTEGER PRIMARY KEY AUTOINCREMENT,
    change             INTEGER NOT NULL,
    lane               INTEGER NOT NULL,
    rank               INTEGER NOT NULL, -- 1 the most critical
    waits              INTEGER NOT NULL, -- 1: it is due at next_attempt
    id                 TEXT    NOT NULL,
    caller             TEXT    NOT NULL,
    operation_id       TEXT    NOT NULL,
    fingerprint        BLOB    NOT NULL,
    origin             TEXT    NOT NULL,
    criticality        INTEGER NOT NULL,
    labels             TEXT    NOT NULL, -- JSON, '' for none
    delivery           INTEGER NOT NULL,
    state              INTEGER NOT NULL, -- 1 pending, 2 retrying, 3 sending, 4 completed, 5 failed, 6 unknown, 7 cancelled
    failure            INTEGER NOT NULL,
    epoch              INTEGER NOT NULL,
    spent              INTEGER NOT NULL,
    max_retries        INTEGER NOT NULL,
    backoff            INTEGER NOT NULL, -- nanoseconds
    repeatable         INTEGER NOT NULL,
    possible_duplicate INTEGER NOT NULL,
    next_attempt       TEXT    NOT NULL,
    not_before         TEXT    NOT NULL,
    expire             TEXT    NOT NULL,
    created            TEXT    NOT NULL,
    updated            TEXT    NOT NULL,
    ended              TEXT    NOT NULL,
    until              TEXT    NOT NULL,
    first_send         TEXT    NOT NULL,
    outcome            INTEGER NOT NULL,
    effect             INTEGER NOT NULL,
    reason             INTEGER NOT NULL,
    detail             TEXT    NOT NULL,
    attempts           INTEGER NOT NULL, -- how many rows there are
    tags               BLOB    NOT NULL,
    sum                BLOB    NOT NULL CHECK (length(sum) = 32)
) STRICT;

CREATE UNIQUE INDEX calls_by_id ON calls (id);
CREATE INDEX calls_by_change ON calls (change, caller);
CREATE INDEX calls_by_caller ON calls (caller);
CREATE INDEX calls_by_state ON calls (caller, state);
CREATE INDEX calls_by_lane ON calls (lane);
CREATE INDEX calls_waiting ON calls (lane, rank, next_attempt) WHERE waits = 1;
CREATE INDEX calls_sending ON calls (seq) WHERE state = 3;
CREATE INDEX calls_expiring ON calls (expire) WHERE waits = 1 AND expire <> '';
CREATE INDEX calls_outlived ON calls (until) WHERE until <> '';

-- Sealed, each (package seal), and no row where there is none.
CREATE TABLE requests (
    seq     INTEGER NOT NULL PRIMARY KEY,
    request BLOB    NOT NULL
) STRICT;
CREATE TABLE answers (
    seq  INTEGER NOT NULL PRIMARY KEY,
    head BLOB    NOT NULL,
    body BLOB    NOT NULL
) STRICT;
CREATE TABLE attempts (
    seq     INTEGER NOT NULL,
    number  INTEGER NOT NULL, -- from 1, in the order they were made
    attempt BLOB    NOT NULL,
    PRIMARY KEY (seq, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE labels (
    caller TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (caller, name, value, seq)
) STRICT, WITHOUT ROWID;
