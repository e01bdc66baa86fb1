"""What to do after a call."""

import dataclasses
import enum

import grpc

from sallyport.client.refusal import explain
from sallyport.v1 import call_pb2


class Step(enum.Enum):
    DONE = "done"  # nothing: the call did what was asked
    FIX = "fix"  # change the request, the policy or the upstream: the same again would end the same way
    RETRY = "retry"  # submit it again
    RETRY_SAME_ID = "retry same id"  # submit it again under this operation_id and no other
    RECONCILE = "reconcile"  # find out what the upstream did before anything else is sent: it may have happened
    WAIT = "wait"  # it still runs: ask later what became of it


@dataclasses.dataclass(frozen=True)
class Advice:
    """after is the wait in seconds before the same is submitted again; 0: not known, a backoff of your own must do."""

    step: Step
    after: float = 0.0
    operation_id: str = ""


def decide(response):
    """What to do after an answer of the broker (a CallResponse)."""
    after = response.retry_after.ToTimedelta().total_seconds()
    match response.next:
        case call_pb2.NEXT_STEP_DONE:
            return Advice(Step.DONE)
        case call_pb2.NEXT_STEP_FIX_REQUEST:
            return Advice(Step.FIX)
        case call_pb2.NEXT_STEP_RETRY:
            return Advice(Step.RETRY, after)
        case call_pb2.NEXT_STEP_RETRY_SAME_ID:
            return Advice(Step.RETRY_SAME_ID, after, response.operation_id)
        case call_pb2.NEXT_STEP_RECONCILE:
            return Advice(Step.RECONCILE)
        case call_pb2.NEXT_STEP_WAIT:
            return Advice(Step.WAIT, after)
    match response.effect:  # a step that a later broker knows: the effect alone tells
        case call_pb2.EFFECT_NONE:
            return Advice(Step.RETRY, after)
        case call_pb2.EFFECT_ANSWERED:
            return Advice(Step.FIX)
    return Advice(Step.RECONCILE)


# The methods that may be sent twice (RFC 9110 §9.2.2), as the policy has them that comes with the broker.
REPEATABLE = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}


def decide_error(error, request, under_contract=False):
    """What to do after a grpc.RpcError of a call with this CallRequest.

    under_contract is your word that an idempotency contract covers the call: the same operation_id has one effect, however often
    it is submitted.
    """
    refusal = explain(error)
    if refusal.nothing_sent:
        # The broker's own trouble passes, or another broker has it not. Anything else is wrong with the request.
        broker = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL)
        return Advice(Step.RETRY, refusal.retry_after) if error.code() in broker else Advice(Step.FIX)
    # Nobody knows what was sent. What you know of the operation decides.
    if request.repeat_safety == call_pb2.REPEAT_SAFETY_NEVER:
        return Advice(Step.RECONCILE)
    if under_contract and request.operation_id:
        return Advice(Step.RETRY_SAME_ID, operation_id=request.operation_id)
    if request.request.method in REPEATABLE:
        return Advice(Step.RETRY)
    return Advice(Step.RECONCILE)
