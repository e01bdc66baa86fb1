"""The title of a web page."""

import html.parser
import re

# A longer one is cut: it is shown in a list.
TITLE_LENGTH = 200


class _Title(html.parser.HTMLParser):
    """Collects the text of the first title."""

    def __init__(self):
        super().__init__()
        self.text, self._inside, self._done = "", False, False

    def handle_starttag(self, tag, attrs):
        self._inside = tag == "title" and not self._done

    def handle_endtag(self, tag):
        if tag == "title" and self._inside:
            self._inside, self._done = False, True

    def handle_data(self, data):
        if self._inside:
            self.text += data


def title_of(response):
    """The title of an answer (HttpResponse) on one line, "" when it has none."""
    content_type = next((header.value.lower() for header in response.headers if header.name.lower() == "content-type"), "")
    if not content_type.startswith("text/html"):
        return ""
    charset = re.search(r"charset=\"?([\w.:-]+)", content_type)
    parser = _Title()
    try:
        parser.feed(response.body.decode(charset[1] if charset else "utf-8", "replace"))
    except (LookupError, AssertionError):  # a charset nobody knows; markup that even this parser gives up on
        return ""
    return " ".join(parser.text.split())[:TITLE_LENGTH]
