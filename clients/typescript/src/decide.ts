// What to do after a call.

import { status, type ServiceError } from '@grpc/grpc-js';

import { Effect, NextStep, RepeatSafety } from './gen/sallyport/v1/call.js';
import { type CallRequest, type CallResponse } from './gen/sallyport/v1/call_service.js';
import { milliseconds } from './milliseconds.js';
import { explain } from './refusal.js';

/** What to do. afterMs is the wait before the same is submitted again; 0: not known, a backoff of your own must do. */
export type Advice =
  | { step: 'done' } // nothing: the call did what was asked
  | { step: 'fix' } // change the request, the policy or the upstream: the same again would end the same way
  | { step: 'retry'; afterMs: number } // submit it again
  | { step: 'retry same id'; afterMs: number; operationId: string } // submit it again under this operation id and no other
  | { step: 'reconcile' } // find out what the upstream did before anything else is sent: it may have happened
  | { step: 'wait'; afterMs: number }; // it still runs: ask later what became of it

export type Step = Advice['step'];

/** What to do after an answer of the broker. */
export function decide(response: CallResponse): Advice {
  const afterMs = milliseconds(response.retryAfter);
  switch (response.next) {
    case NextStep.NEXT_STEP_DONE:
      return { step: 'done' };
    case NextStep.NEXT_STEP_FIX_REQUEST:
      return { step: 'fix' };
    case NextStep.NEXT_STEP_RETRY:
      return { step: 'retry', afterMs };
    case NextStep.NEXT_STEP_RETRY_SAME_ID:
      return { step: 'retry same id', afterMs, operationId: response.operationId };
    case NextStep.NEXT_STEP_RECONCILE:
      return { step: 'reconcile' };
    case NextStep.NEXT_STEP_WAIT:
      return { step: 'wait', afterMs };
  }
  switch (response.effect) { // a step that a later broker knows: the effect alone tells
    case Effect.EFFECT_NONE:
      return { step: 'retry', afterMs };
    case Effect.EFFECT_ANSWERED:
      return { step: 'fix' };
    default:
      return { step: 'reconcile' };
  }
}

// The methods that may be sent twice (RFC 9110 §9.2.2), as the policy has them that comes with the broker.
const repeatable = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']);

/**
 * What to do after an error of a call with this request. underContract is your word that an idempotency contract covers the call:
 * the same operation id has one effect, however often it is submitted.
 */
export function decideError(error: ServiceError, request: CallRequest, underContract = false): Advice {
  const refusal = explain(error);
  if (refusal.nothingSent) {
    switch (error.code) {
      case status.UNAVAILABLE: // the broker's own trouble: it passes, or another broker has it not
      case status.RESOURCE_EXHAUSTED:
      case status.INTERNAL:
        return { step: 'retry', afterMs: refusal.retryAfterMs };
      default:
        return { step: 'fix' };
    }
  }
  // Nobody knows what was sent. What you know of the operation decides.
  if (request.repeatSafety === RepeatSafety.REPEAT_SAFETY_NEVER) {
    return { step: 'reconcile' };
  }
  if (underContract && request.operationId !== '') {
    return { step: 'retry same id', afterMs: 0, operationId: request.operationId };
  }
  return repeatable.has(request.request?.method ?? '') ? { step: 'retry', afterMs: 0 } : { step: 'reconcile' };
}
