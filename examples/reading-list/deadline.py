"""The one time limit of a request."""

import time


class Deadline:
    """Every call to a broker is given what is left of it, so that no step can have a fresh time-out of its own."""

    def __init__(self, seconds):
        self._end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self._end - time.monotonic())
