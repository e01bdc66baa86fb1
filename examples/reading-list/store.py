"""The bookmarks, in SQLite. Run as a program, it prints those of a file.

usage: store.py FILE
"""

import dataclasses
import sqlite3
import sys
import threading
import time
import uuid

# The row is there before the link leaves, with the id under which it leaves: whatever happens after it, a crash included, can be picked
# up again. The key of the client is worth something only together with the client.
SCHEMA = """
CREATE TABLE IF NOT EXISTS bookmarks (
  id             TEXT PRIMARY KEY,
  owner          TEXT NOT NULL,
  key            TEXT NOT NULL,
  url            TEXT NOT NULL,
  state          TEXT NOT NULL DEFAULT 'saving' CHECK (state IN ('saving', 'saved', 'refused', 'unclear')),
  preview_status TEXT NOT NULL DEFAULT 'pending' CHECK (preview_status IN ('pending', 'available', 'unavailable')),
  preview_reason TEXT NOT NULL DEFAULT '',
  title          TEXT NOT NULL DEFAULT '',
  created        REAL NOT NULL,
  UNIQUE (owner, key)
)"""

COLUMNS = "id, owner, key, url, state, preview_status, preview_reason, title"


@dataclasses.dataclass(frozen=True)
class Bookmark:
    id: str
    owner: str
    key: str
    url: str
    state: str
    preview_status: str
    preview_reason: str
    title: str


@dataclasses.dataclass(frozen=True)
class Preview:
    status: str
    title: str = ""
    reason: str = ""


class Store:
    """Threads may share it. Each change is committed when its method returns: no crash of this process undoes it."""

    def __init__(self, file):
        self._lock = threading.Lock()  # held while the one connection is used
        # A lock of another process on the file is waited for no longer than a request can wait.
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None, timeout=0.2)
        self._run("PRAGMA journal_mode = WAL")
        self._run(SCHEMA)

    def add(self, owner, key, url):
        """The bookmark of this key, and whether it is new. Of two that come at once, one makes it."""
        _, made = self._run(
            "INSERT INTO bookmarks (id, owner, key, url, created) VALUES (?, ?, ?, ?, ?) ON CONFLICT (owner, key) DO NOTHING",
            uuid.uuid4().hex, owner, key, url, time.time(), durable=True,
        )
        return self._bookmarks("owner = ? AND key = ?", owner, key)[0], made == 1

    def settle(self, id, state):
        """Records the state of one that is being saved. What is settled stays."""
        self._run("UPDATE bookmarks SET state = ? WHERE id = ? AND state = 'saving'", state, id)
        return self._bookmarks("id = ?", id)[0]

    def preview(self, id, preview):
        """Records the first preview there is."""
        self._run(
            "UPDATE bookmarks SET preview_status = ?, preview_reason = ?, title = ? WHERE id = ? AND preview_status = 'pending'",
            preview.status, preview.reason, preview.title, id,
        )
        return self._bookmarks("id = ?", id)[0]

    def of(self, owner):
        return self._bookmarks("owner = ?", owner)

    def get(self, owner, id):
        return next(iter(self._bookmarks("owner = ? AND id = ?", owner, id)), None)

    def unfinished(self, age):
        """Those that nobody can be working on any more, since they are older than that, in seconds."""
        unfinished = "(state = 'saving' OR state = 'saved' AND preview_status = 'pending')"
        return self._bookmarks(unfinished + " AND created < ?", time.time() - age)

    def close(self):
        self._db.close()

    def _bookmarks(self, where, *values):
        rows, _ = self._run(f"SELECT {COLUMNS} FROM bookmarks WHERE {where} ORDER BY created", *values)
        return [Bookmark(*row) for row in rows]

    def _run(self, statement, *values, durable=False):
        """Only a new row waits for the disk. Whatever else a loss of power takes is done again, under the id of the row."""
        with self._lock:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            cursor = self._db.execute(statement, values)
            return cursor.fetchall(), cursor.rowcount


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: store.py FILE")
    rows = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).execute(
        "SELECT owner, key, state, preview_status, coalesce(nullif(title, ''), preview_reason) FROM bookmarks ORDER BY created"
    )
    for row in rows:
        print(" | ".join(row))
