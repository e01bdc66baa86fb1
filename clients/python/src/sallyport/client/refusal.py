"""What an error of a call says."""

import dataclasses

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc_status import rpc_status

# Marks what the broker itself says, in contrast to a proxy on the way to it.
DOMAIN = "sallyport"


@dataclasses.dataclass
class Refusal:
    """nothing_sent is proof that no byte of the call can have left the broker. False means unknown.

    reason is the broker's word for it, "" when the error is not the broker's. fields are those of the request that cannot be
    taken. retry_after is in seconds, 0 when not known.
    """

    reason: str = ""
    nothing_sent: bool = False
    fields: list[str] = dataclasses.field(default_factory=list)
    retry_after: float = 0.0


def explain(error):
    """Reads the details of a grpc.RpcError (google.rpc.Status in the trailers). Without them nothing is known."""
    refusal = Refusal()
    for detail in _details(error):
        try:
            _read(refusal, detail)
        except DecodeError:  # damaged on the way: it proves nothing
            continue
    return refusal


def _read(refusal, detail):
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    if detail.Unpack(info):
        if info.domain == DOMAIN:
            refusal.reason = info.reason
            refusal.nothing_sent = info.metadata.get("sent") == "false"
    elif detail.Unpack(bad):
        refusal.fields = [violation.field for violation in bad.field_violations]
    elif detail.Unpack(retry):
        refusal.retry_after = retry.retry_delay.ToTimedelta().total_seconds()


def _details(error):
    try:
        status = rpc_status.from_call(error)
    except (DecodeError, ValueError):  # not the broker's: damaged on the way, or of another status than the error
        return ()
    return status.details if status else ()
