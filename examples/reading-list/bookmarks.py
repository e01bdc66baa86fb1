"""What the reading list does, in the order in which it does it."""

from outbound import Outbound
from store import Bookmark, Store


class Conflict(Exception):
    """The key is that of another bookmark."""


class ReadingList:
    def __init__(self, store: Store, outbound: Outbound):
        self._store, self._outbound = store, outbound

    def create(self, authorization, key, url, deadline):
        """The bookmark of this key, and whether it is new. Before it is known who asks, nothing is stored."""
        owner = self._outbound.whoami(authorization, deadline)
        bookmark, new = self._store.add(owner, key, url)
        if bookmark.url != url:
            raise Conflict
        return self.finish(bookmark, deadline), new

    def finish(self, bookmark: Bookmark, deadline):
        """Does what is still to be done for it, as far as the time goes.

        It is the same for a new bookmark, for a repeat while the first request still runs, and for one that was left behind by a
        crash. Nothing here has to keep them apart: each step is one operation, however often it is asked for.
        """
        if bookmark.state == "saving":
            bookmark = self._store.settle(bookmark.id, self._outbound.keep(bookmark, deadline))
        if bookmark.state == "saved" and bookmark.preview_status == "pending":
            bookmark = self._store.preview(bookmark.id, self._outbound.title(bookmark, deadline))
        return bookmark

    def list(self, authorization, deadline):
        return self._store.of(self._outbound.whoami(authorization, deadline))

    def get(self, authorization, id, deadline):
        return self._store.get(self._outbound.whoami(authorization, deadline), id)

    def unfinished(self, age):
        return self._store.unfinished(age)
