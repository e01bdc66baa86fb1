package io.github.sallyport.client;

import io.github.sallyport.v1.CallRequest;
import io.github.sallyport.v1.CallResponse;
import io.github.sallyport.v1.RepeatSafety;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.Set;

/**
 * What to do after a call.
 *
 * @param after the wait before the same is submitted again; zero: not known, a backoff of your own must do
 * @param operationId the id to use with RETRY_SAME_ID
 */
public record Advice(Step step, Duration after, String operationId) {
  public enum Step {
    /** Nothing: the call did what was asked. */
    DONE,
    /** Change the request, the policy or the upstream: the same again would end the same way. */
    FIX,
    /** Submit it again. */
    RETRY,
    /** Submit it again under this operation id and no other. */
    RETRY_SAME_ID,
    /** Find out what the upstream did before anything else is sent: it may have happened. */
    RECONCILE,
    /** It still runs: ask later what became of it. */
    WAIT
  }

  /** The methods that may be sent twice (RFC 9110 §9.2.2), as the policy has them that comes with the broker. */
  private static final Set<String> REPEATABLE = Set.of("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE");

  /** What to do after an answer of the broker. */
  public static Advice decide(CallResponse response) {
    var after = duration(response.getRetryAfter());
    return switch (response.getNext()) {
      case NEXT_STEP_DONE -> of(Step.DONE);
      case NEXT_STEP_FIX_REQUEST -> of(Step.FIX);
      case NEXT_STEP_RETRY -> of(Step.RETRY, after);
      case NEXT_STEP_RETRY_SAME_ID -> new Advice(Step.RETRY_SAME_ID, after, response.getOperationId());
      case NEXT_STEP_RECONCILE -> of(Step.RECONCILE);
      case NEXT_STEP_WAIT -> of(Step.WAIT, after);
      case NEXT_STEP_UNSPECIFIED, UNRECOGNIZED -> // a step that a later broker knows: the effect alone tells
          switch (response.getEffect()) {
            case EFFECT_NONE -> of(Step.RETRY, after);
            case EFFECT_ANSWERED -> of(Step.FIX);
            default -> of(Step.RECONCILE);
          };
    };
  }

  /**
   * What to do after an error of a call with this request.
   *
   * @param underContract your word that an idempotency contract covers the call: the same operation id has one effect, however often
   *     it is submitted
   */
  public static Advice decideError(StatusRuntimeException error, CallRequest request, boolean underContract) {
    var refusal = Refusal.explain(error);
    if (refusal.nothingSent()) {
      return switch (error.getStatus().getCode()) {
          // The broker's own trouble: it passes, or another broker has it not.
        case UNAVAILABLE, RESOURCE_EXHAUSTED, INTERNAL -> of(Step.RETRY, refusal.retryAfter());
        default -> of(Step.FIX);
      };
    }
    // Nobody knows what was sent. What you know of the operation decides.
    if (request.getRepeatSafety() == RepeatSafety.REPEAT_SAFETY_NEVER) {
      return of(Step.RECONCILE);
    }
    if (underContract && !request.getOperationId().isEmpty()) {
      return new Advice(Step.RETRY_SAME_ID, Duration.ZERO, request.getOperationId());
    }
    return of(REPEATABLE.contains(request.getRequest().getMethod()) ? Step.RETRY : Step.RECONCILE);
  }

  private static Advice of(Step step) {
    return of(step, Duration.ZERO);
  }

  private static Advice of(Step step, Duration after) {
    return new Advice(step, after, "");
  }

  static Duration duration(com.google.protobuf.Duration duration) {
    return Duration.ofSeconds(duration.getSeconds(), duration.getNanos());
  }
}
