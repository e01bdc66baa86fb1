"""A reading list over HTTP. It answers within three seconds, whatever the services behind it do.

usage: READING_LIST_TOKEN=… READING_LIST_PAGES_TOKEN=… app.py [--listen HOST:PORT] [--broker unix:PATH] [--db FILE]
           [--identity URL] [--links URL] [--finish-every SECONDS]
"""

import argparse
import http.server
import json
import logging
import os
import re
import signal
import threading
import urllib.parse

from bookmarks import Conflict, ReadingList
from deadline import Deadline
from outbound import Outbound, Unauthorized, Unavailable, channel
from store import Store

# The promise is three seconds, from when the request is here to when the answer leaves. A quarter of one is for our own work, so that it
# is kept even where the broker hangs and gRPC itself ends the call.
PROMISE = 3.0
SECONDS = PROMISE - 0.25
MAX_BODY, MAX_URL, MAX_KEY = 8192, 2048, 200


class Refused(Exception):
    """A request that makes no sense, and why."""


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 5  # to send a request; it does not hold a thread for longer

    def do_POST(self):
        self._answer(self._create if self.path == "/bookmarks" else None)

    def do_GET(self):
        if self.path == "/bookmarks":
            return self._answer(self._list)
        self._answer(self._get if self.path.startswith("/bookmarks/") else None)

    def _create(self):
        key, url = self.headers.get("Idempotency-Key", ""), self._url()
        if not 0 < len(key) <= MAX_KEY:
            raise Refused(f"send an Idempotency-Key of 1 to {MAX_KEY} characters")
        deadline = Deadline(SECONDS)
        bookmark, new = self.server.reading_list.create(self._authorization(), key, url, deadline)
        match bookmark.state:
            case "saved":
                return (201 if new else 200), _shown(bookmark)
            case "saving":  # it goes on by itself; a repeat with the same key tells how it stands
                return 202, _shown(bookmark)
        return 502, _shown(bookmark)

    def _list(self):
        return 200, [_shown(bookmark) for bookmark in self.server.reading_list.list(self._authorization(), Deadline(SECONDS))]

    def _get(self):
        bookmark = self.server.reading_list.get(self._authorization(), self.path.removeprefix("/bookmarks/"), Deadline(SECONDS))
        return (200, _shown(bookmark)) if bookmark else (404, {"error": "no such bookmark"})

    def _authorization(self):
        authorization = self.headers.get("Authorization", "")
        if not re.fullmatch(r"Bearer [\w.~+/-]+=*", authorization, re.ASCII):  # RFC 6750 §2.1
            raise Unauthorized
        return authorization

    def _url(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            raise Refused(f"send a body of at most {MAX_BODY} bytes, and its length")
        try:
            url = json.loads(self.rfile.read(int(length)))["url"]
            parts = urllib.parse.urlsplit(url)
        except (ValueError, TypeError, KeyError, AttributeError, TimeoutError):
            raise Refused('send {"url": "https://…"}') from None
        plain = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and re.fullmatch("[!-~]+", url)
        if not plain or len(url) > MAX_URL:
            raise Refused(f"the url is no plain http or https URL of at most {MAX_URL} characters")
        return url

    def _answer(self, route):
        try:
            code, message = route() if route else (404, {"error": "no such path"})
        except Refused as why:
            code, message = 400, {"error": str(why)}
        except Unauthorized:
            code, message = 401, {"error": "send the bearer token of a user"}
        except Conflict:
            code, message = 409, {"error": "this Idempotency-Key is that of another url"}
        except Unavailable as unavailable:
            return self._send(503, {"error": "try again"}, [("Retry-After", unavailable.retry_after)])
        except Exception:
            logging.exception("%s %s", self.command, self.path)
            code, message = 500, {"error": "this is our fault"}
        self._send(code, message, [("Retry-After", 2)] if code == 202 else ())

    def _send(self, code, message, headers=()):
        body = json.dumps(message).encode() + b"\n"
        self.send_response(code)
        for name, value in [("Content-Type", "application/json"), ("Content-Length", len(body)), *headers]:
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def _shown(bookmark):
    """What a user sees of it: what has no value is left out, and so is the preview of a bookmark that will not have one."""
    names = ["id", "url", "state"]
    if bookmark.state in ("saving", "saved"):
        names += ["preview_status", "preview_reason", "title"]
    return {name: getattr(bookmark, name) for name in names if getattr(bookmark, name)}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for the requests under way

    def __init__(self, address, reading_list):
        super().__init__(address, Handler)
        self.reading_list = reading_list


def finish_forever(reading_list, every, stop):
    """Finishes what a lost answer or a crash has left behind."""
    while not stop.wait(every):
        try:
            for bookmark in reading_list.unfinished(age=PROMISE):
                logging.info("finishing %s", reading_list.finish(bookmark, Deadline(SECONDS)))
        except Exception:
            logging.exception("finishing")


def main():
    options = argparse.ArgumentParser(description="A reading list over HTTP.")
    options.add_argument("--listen", default="127.0.0.1:9000")
    options.add_argument("--broker", default="unix:reading-list-data/broker.sock")
    options.add_argument("--db", default="reading-list-data/bookmarks.db")
    options.add_argument("--identity", default="http://127.0.0.1:9001")
    options.add_argument("--links", default="http://127.0.0.1:9002")
    options.add_argument("--finish-every", type=float, default=2.0, metavar="SECONDS")
    options = options.parse_args()
    logging.basicConfig(level=logging.INFO)

    host, _, port = options.listen.rpartition(":")
    store, stop = Store(options.db), threading.Event()
    with (
        channel(options.broker, os.environ["READING_LIST_TOKEN"]) as own,
        channel(options.broker, os.environ["READING_LIST_PAGES_TOKEN"]) as pages,
    ):
        reading_list = ReadingList(store, Outbound(own, pages, options.identity, options.links))
        finisher = threading.Thread(target=finish_forever, args=(reading_list, options.finish_every, stop))
        with Server((host, int(port)), reading_list) as server:
            # shutdown waits for serve_forever, so the thread that serves cannot be the one to call it.
            for end in (signal.SIGINT, signal.SIGTERM):
                signal.signal(end, lambda *_: threading.Thread(target=server.shutdown).start())
            print("the reading list is at http://%s:%d/bookmarks" % server.server_address[:2], flush=True)
            finisher.start()
            server.serve_forever(poll_interval=0.1)
            stop.set()
        finisher.join()
    store.close()


if __name__ == "__main__":
    main()
