"""What the reading list asks of others, all of it through the broker: who is this, keep this link, what is this page called.

Repeats, waits and addresses are the business of the broker and its policies. What is left to decide here is what an answer means.
"""

import json
import math
import urllib.parse

import grpc
from google.protobuf import duration_pb2
from sallyport.client import Client, Step, decide, decide_error
from sallyport.v1 import call_pb2, call_service_pb2

from page import title_of
from store import Preview

# What each step leaves of the time to those after it, in seconds. The broker ends the step before that, with its waits and repeats.
AFTER_IDENTITY, AFTER_LINK, AFTER_TITLE = 1.3, 0.3, 0.2


class Unauthorized(Exception):
    """Identity does not know the token."""


class Unavailable(Exception):
    """What cannot be done without could not be had in time."""

    def __init__(self, retry_after=0.0):
        super().__init__()
        self.retry_after = max(1, math.ceil(retry_after))  # Retry-After has whole seconds


def channel(target, token):
    """A client with the identity of this token. It goes over a unix socket, where nobody can read the token on its way."""
    socket = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    return Client(target, grpc.composite_channel_credentials(socket, grpc.access_token_call_credentials(token)))


class Outbound:
    """own may call the team's services. pages is another caller of the broker, with other policies: its URLs come from users."""

    def __init__(self, own, pages, identity, links):
        self._own, self._pages, self._identity, self._links = own, pages, identity, links

    def whoami(self, authorization, deadline):
        headers = [call_pb2.HttpHeader(name="Authorization", value=authorization)]
        asked = _request("GET", self._identity + "/whoami", AFTER_IDENTITY, headers=headers)
        answer, advice = _ask(self._own, asked, deadline)
        if advice.step is Step.DONE:
            try:
                return str(json.loads(answer.response.body)["user"])
            except (ValueError, TypeError, KeyError):  # whoever answered, it was not identity
                raise Unavailable from None
        if _refused(answer) and answer.response.status in (401, 403):
            raise Unauthorized
        raise Unavailable(advice.after)

    def keep(self, bookmark, deadline):
        """Has the link kept, and gives the state that the bookmark is in then.

        It may be called again whenever the state is still "saving": the id of the operation comes from the bookmark, and the body is
        the same to the byte, so that the broker and the links service see one operation, whoever asks and how often.
        """
        body = json.dumps({"id": bookmark.id, "owner": bookmark.owner, "url": bookmark.url}).encode()
        asked = _request("POST", self._links + "/links", AFTER_LINK, operation_id="link-" + bookmark.id, body=body)
        answer, advice = _ask(self._own, asked, deadline, under_contract=True)
        match advice.step:
            case Step.DONE:
                return "saved"
            case Step.FIX if _refused(answer):
                return "refused"
            case Step.RECONCILE:  # the key has expired: a person must look
                return "unclear"
        return "saving"  # not known yet, or not done yet

    def title(self, bookmark, deadline):
        """Looks the title of the page up, once.

        The operation id makes one request of two at the same time: the broker has the second wait for the answer to the first.
        """
        page, _ = urllib.parse.urldefrag(bookmark.url)
        asked = _request("GET", page, AFTER_TITLE, operation_id="title-" + bookmark.id)
        answer, advice = _ask(self._pages, asked, deadline)
        if advice.step is not Step.DONE:
            return Preview("unavailable", reason=_reason(answer, advice))
        title = title_of(answer.response)
        return Preview("available", title=title) if title else Preview("unavailable", reason="the page has no title")


def _request(method, url, reserve, headers=(), body=b"", operation_id=""):
    return call_service_pb2.CallRequest(
        request=call_pb2.HttpRequest(method=method, url=url, headers=headers, body=body),
        operation_id=operation_id,
        reserve=duration_pb2.Duration(nanos=int(reserve % 1 * 1e9), seconds=int(reserve)),
    )


def _ask(broker: Client, request, deadline, under_contract=False):
    """One call in what is left of the time. Without an answer of the broker there is still advice: what to do after its error."""
    try:
        answer = broker.call(request, timeout=deadline.left())
    except grpc.RpcError as error:
        return None, decide_error(error, request, under_contract)
    return answer, decide(answer)


def _refused(answer):
    """Whether the service itself said no. A broker that may not or cannot call it is for us to mend, and says nothing of the request."""
    return answer is not None and answer.outcome != call_pb2.OUTCOME_SUCCESS and answer.effect == call_pb2.EFFECT_ANSWERED


def _reason(answer, advice):
    """Why there is no title, for the user who chose the URL.

    It is one of these sentences and nothing of the broker's: its words, and names and addresses of the network, are not for users. An
    address that is closed reads the same as one where nobody listens, else saving bookmarks would map the network.
    """
    if answer is None:
        # A URL that the broker does not take, or a broker that is not there.
        return "the page cannot be reached" if advice.step is Step.FIX else "titles cannot be looked up at the moment"
    last = answer.attempts[-1].failure if answer.attempts else call_pb2.FAILURE_UNSPECIFIED
    if answer.outcome == call_pb2.OUTCOME_DEADLINE_EXCEEDED or last == call_pb2.FAILURE_ATTEMPT_TIMEOUT:
        return "the page took too long"
    if answer.response.status >= 400:
        return "the page answered with an error"
    if answer.outcome == call_pb2.OUTCOME_RESPONSE_REJECTED:
        return "the page cannot be read"
    return "the page cannot be reached"
