"""Asks a broker for the answers and errors of a list, and prints what the client advises for each.

The test (internal/polyglot) runs the like of it in every language, and holds them all to the same table.

usage: vectors.py BROKER LIST
"""

import json
import pathlib
import sys

import grpc

from sallyport.client import Client, decide, decide_error
from sallyport.v1 import call_pb2, call_service_pb2, call_service_pb2_grpc

RETRY_POLICY = """{"methodConfig": [{
  "name": [{"service": "sallyport.v1.CallService"}],
  "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
    "retryableStatusCodes": ["UNAVAILABLE"]
  }
}]}"""


def ask(broker, vector):
    never = call_pb2.REPEAT_SAFETY_NEVER if vector["never"] else call_pb2.REPEAT_SAFETY_UNSPECIFIED
    http = call_pb2.HttpRequest(method=vector["method"], url="http://upstream.example.com/")
    request = call_service_pb2.CallRequest(request=http, operation_id=vector["operation_id"], repeat_safety=never)
    try:
        return decide(broker.call(request, timeout=30))
    except grpc.RpcError as error:
        return decide_error(error, request, vector["under_contract"])


def stock(target):
    """Makes one call that fails, over a channel with a retry policy as many services have one: it arrives four times.

    No caller of a broker should have this; the test counts it, and so shows that it would see a client of ours do the same.
    """
    with grpc.insecure_channel(target, options=[("grpc.service_config", RETRY_POLICY)]) as channel:
        try:
            call_service_pb2_grpc.CallServiceStub(channel).Call(
                call_service_pb2.CallRequest(operation_id="stock"), timeout=30
            )
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return
        raise AssertionError("want UNAVAILABLE")


def main():
    target, vectors = sys.argv[1:]
    given = {}
    with Client(target) as broker:
        for vector in json.loads(pathlib.Path(vectors).read_text()):
            advice = ask(broker, vector)
            given[vector["operation_id"]] = {
                "step": advice.step.value,
                "after_ms": round(advice.after * 1000),
                "operation_id": advice.operation_id,
            }
    stock(target)
    json.dump(given, sys.stdout)


if __name__ == "__main__":
    main()
