"""Shows, call by call, what a client of a broker meets and how it decides.

usage: calls.py BROKER UPSTREAM    (host:port of the broker, base URL of the upstream of clients/upstream; prints a JSON report)
"""

import json
import sys
import time

import grpc
from google.protobuf import duration_pb2

from sallyport.client import Client, decide, decide_error, explain
from sallyport.v1 import call_pb2, call_service_pb2


def request(method, url, headers=(), body=b"", **fields):
    """A CallRequest; fields are those of the message."""
    return call_service_pb2.CallRequest(
        request=call_pb2.HttpRequest(method=method, url=url, headers=headers, body=body), **fields
    )


def what(response):
    """What a caller decides by, and what it decides."""
    advice = decide(response)
    return {
        "outcome": call_pb2.Outcome.Name(response.outcome),
        "effect": call_pb2.Effect.Name(response.effect),
        "next": call_pb2.NextStep.Name(response.next),
        "reason": call_pb2.Reason.Name(response.reason),
        "sends": response.sends,
        "status": response.response.status,
        "advice": advice.step.value,
        "delay_known": advice.after > 0,
    }


def success(broker, upstream):
    response = broker.call(request("GET", upstream + "/ok"), timeout=30)
    return what(response) | {"body": response.response.body.decode(), "attempts": len(response.attempts)}


def unknown(broker, upstream):
    """The upstream takes a POST and never answers: nobody knows what it did, and nothing may be sent again."""
    return what(broker.call(request("POST", upstream + "/lost", body=b"{}"), timeout=30))


def deadline(broker, upstream):
    """This client sets the only time limit there is. The answer comes before it, here a second before it, and is typed."""
    allowed, reserve = 3.0, duration_pb2.Duration(seconds=1)
    began = time.monotonic()
    response = broker.call(request("GET", upstream + "/slow", reserve=reserve), timeout=allowed)
    return what(response) | {"in_time": time.monotonic() - began < allowed}


def too_large(broker, upstream):
    """An answer above the limit is not taken, and of what it did nothing is known. A GET may be asked again."""
    return what(broker.call(request("GET", upstream + "/large", max_response_bytes=1024), timeout=30))


def refused(broker, upstream):
    """What the broker does not take is an error that says for sure that nothing was sent."""
    asked = request("GET", upstream + "/ok#fragment")
    try:
        broker.call(asked, timeout=30)
    except grpc.RpcError as error:
        refusal = explain(error)
        return {
            "code": error.code().name,
            "reason": refusal.reason,
            "nothing_sent": refusal.nothing_sent,
            "fields": refusal.fields,
            "advice": decide_error(error, asked).step.value,
        }
    raise AssertionError("it was taken")


def raw_value(broker, upstream):
    """A header value that is not UTF-8 goes and comes as bytes. The upstream sends it back."""
    sent = call_pb2.HttpHeader(name="X-Echo", raw_value=b"caf\xe9")
    response = broker.call(request("GET", upstream + "/echo", headers=[sent]), timeout=30)
    back = [h for h in response.response.headers if h.name.lower() == "x-echo"]
    return what(response) | {"values": [[h.value, h.raw_value.hex()] for h in back]}


def breaker_open(broker, upstream):
    """After five failures in a row the broker leaves the upstream alone, and says when to come again."""
    for failures in range(20):
        response = broker.call(request("GET", upstream + "/broken", max_attempts=1), timeout=30)
        if response.outcome == call_pb2.OUTCOME_BREAKER_OPEN:
            return what(response) | {"failures": failures}
    raise AssertionError("the breaker did not open")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: calls.py BROKER UPSTREAM")
    target, upstream = sys.argv[1:]
    # breaker_open comes last: it leaves the upstream refused for a while.
    calls = [success, unknown, deadline, too_large, refused, raw_value, breaker_open]
    with Client(target) as broker:
        json.dump({call.__name__: call(broker, upstream) for call in calls}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
