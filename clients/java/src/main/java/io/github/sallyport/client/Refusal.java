package io.github.sallyport.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.List;

/**
 * What an error of a call says.
 *
 * @param reason the broker's word for it; "" when the error is not the broker's
 * @param nothingSent proof that no byte of the call can have left the broker; false means unknown
 * @param fields those of the request that cannot be taken
 * @param retryAfter zero when not known
 */
public record Refusal(String reason, boolean nothingSent, List<String> fields, Duration retryAfter) {
  /** Marks what the broker itself says, in contrast to a proxy on the way to it. */
  private static final String DOMAIN = "sallyport";

  private static final Refusal NOTHING_KNOWN = new Refusal("", false, List.of(), Duration.ZERO);

  /** Reads the details of an error (google.rpc.Status in the trailers). Without them nothing is known. */
  public static Refusal explain(StatusRuntimeException error) {
    var status = status(error);
    if (status == null || status.getCode() != error.getStatus().getCode().value()) {
      return NOTHING_KNOWN; // not the broker's
    }
    var refusal = NOTHING_KNOWN;
    for (var detail : status.getDetailsList()) {
      try {
        refusal = refusal.with(detail);
      } catch (InvalidProtocolBufferException damaged) {
        continue; // on the way: it proves nothing
      }
    }
    return refusal;
  }

  private static com.google.rpc.Status status(StatusRuntimeException error) {
    try {
      return StatusProto.fromThrowable(error);
    } catch (IllegalArgumentException damaged) {
      return null; // on the way: it proves nothing
    }
  }

  private Refusal with(Any detail) throws InvalidProtocolBufferException {
    if (detail.is(ErrorInfo.class)) {
      var info = detail.unpack(ErrorInfo.class);
      if (info.getDomain().equals(DOMAIN)) {
        return new Refusal(info.getReason(), "false".equals(info.getMetadataMap().get("sent")), fields, retryAfter);
      }
    } else if (detail.is(BadRequest.class)) {
      var violations = detail.unpack(BadRequest.class).getFieldViolationsList();
      return new Refusal(reason, nothingSent, violations.stream().map(v -> v.getField()).toList(), retryAfter);
    } else if (detail.is(RetryInfo.class)) {
      return new Refusal(reason, nothingSent, fields, Advice.duration(detail.unpack(RetryInfo.class).getRetryDelay()));
    }
    return this;
  }
}
