"""Calls through a broker, from Python, over stubs generated from proto/sallyport/v1.

usage: calls.py BROKER UPSTREAM    (host:port of the broker, base URL of the upstream; prints a JSON report)

The stubs are made with
    python -m grpc_tools.protoc -I proto --python_out=DIR --grpc_python_out=DIR \
        proto/sallyport/v1/call.proto proto/sallyport/v1/call_service.proto
and found through PYTHONPATH=DIR.
"""

import json
import sys
import time

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from sallyport.v1 import call_pb2, call_service_pb2, call_service_pb2_grpc

# A gRPC retry policy would send again what the broker refused to send again.
OPTIONS = [("grpc.enable_retries", 0)]


def request(method, url, headers=(), **fields):
    """A CallRequest; fields are those of the message, but for the body."""
    body = fields.pop("body", b"")
    return call_service_pb2.CallRequest(
        request=call_pb2.HttpRequest(method=method, url=url, headers=headers, body=body), **fields
    )


def what(response):
    """What a caller decides by."""
    return {
        "outcome": call_pb2.Outcome.Name(response.outcome),
        "effect": call_pb2.Effect.Name(response.effect),
        "next": call_pb2.NextStep.Name(response.next),
        "sends": response.sends,
        "status": response.response.status,
    }


def success(stub, upstream):
    response = stub.Call(request("GET", upstream + "/ok"), timeout=10)
    return what(response) | {"body": response.response.body.decode(), "attempts": len(response.attempts)}


def unknown(stub, upstream):
    """The upstream takes a POST and never answers: nobody knows what it did, and nothing may be sent again."""
    return what(stub.Call(request("POST", upstream + "/lost", body=b"{}"), timeout=10))


def deadline(stub, upstream):
    """The only time limit there is is this client's own. The answer comes before it and is typed."""
    allowed = 1.0
    began = time.monotonic()
    response = stub.Call(request("GET", upstream + "/slow"), timeout=allowed)
    return what(response) | {"in_time": time.monotonic() - began < allowed}


def refused(stub, upstream):
    """What the broker does not take is an error that says for sure that nothing was sent."""
    try:
        stub.Call(request("GET", upstream + "/ok#fragment"), timeout=10)
    except grpc.RpcError as error:
        return {"code": error.code().name} | refusal(error)
    return {"code": "OK"}


def refusal(error):
    """The details of an error (google.rpc.Status in the trailers). Without them, an error says nothing of what was sent."""
    found = {}
    for detail in rpc_status.from_call(error).details:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            found |= {"domain": info.domain, "reason": info.reason, "sent": info.metadata.get("sent")}
        elif detail.Unpack(bad):
            found["fields"] = [violation.field for violation in bad.field_violations]
    return found


def raw_value(stub, upstream):
    """A header value that is not UTF-8 goes and comes as bytes: the upstream sends it back."""
    sent = call_pb2.HttpHeader(name="X-Echo", raw_value=b"caf\xe9")
    response = stub.Call(request("GET", upstream + "/echo", headers=[sent]), timeout=10)
    back = [h for h in response.response.headers if h.name.lower() == "x-echo"]
    return what(response) | {"values": [[h.value, h.raw_value.hex()] for h in back]}


def main():
    broker, upstream = sys.argv[1:]
    with grpc.insecure_channel(broker, options=OPTIONS) as channel:
        stub = call_service_pb2_grpc.CallServiceStub(channel)
        calls = [success, unknown, deadline, refused, raw_value]
        json.dump({call.__name__: call(stub, upstream) for call in calls}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
