package io.github.sallyport.calls;

import com.google.gson.GsonBuilder;
import com.google.protobuf.ByteString;
import io.github.sallyport.client.Advice;
import io.github.sallyport.client.Refusal;
import io.github.sallyport.client.SallyportClient;
import io.github.sallyport.v1.CallRequest;
import io.github.sallyport.v1.CallResponse;
import io.github.sallyport.v1.HttpHeader;
import io.github.sallyport.v1.HttpRequest;
import io.github.sallyport.v1.Outcome;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Shows, call by call, what a client of a broker meets and how it decides.
 *
 * <p>Arguments: host:port of the broker, base URL of the upstream of clients/upstream. Prints a report in JSON.
 */
public final class Calls {
  private static final Duration HALF_A_MINUTE = Duration.ofSeconds(30);

  private final SallyportClient broker;
  private final String upstream;

  private Calls(SallyportClient broker, String upstream) {
    this.broker = broker;
    this.upstream = upstream;
  }

  public static void main(String[] args) {
    if (args.length != 2) {
      System.err.println("usage: Calls BROKER UPSTREAM");
      System.exit(2);
    }
    var report = new LinkedHashMap<String, Map<String, Object>>();
    try (var broker = new SallyportClient(args[0])) {
      var calls = new Calls(broker, args[1]);
      report.put("success", calls.success());
      report.put("unknown", calls.unknown());
      report.put("deadline", calls.deadline());
      report.put("too_large", calls.tooLarge());
      report.put("refused", calls.refused());
      report.put("raw_value", calls.rawValue());
      report.put("breaker_open", calls.breakerOpen()); // the last one: it leaves the upstream refused for a while
    }
    System.out.println(new GsonBuilder().setPrettyPrinting().create().toJson(report));
  }

  private HttpRequest.Builder http(String method, String path) {
    return HttpRequest.newBuilder().setMethod(method).setUrl(upstream + path);
  }

  private static CallRequest request(HttpRequest.Builder http) {
    return CallRequest.newBuilder().setRequest(http).build();
  }

  /** What a caller decides by, and what it decides. */
  private static Map<String, Object> what(CallResponse response) {
    var advice = Advice.decide(response);
    var report = new LinkedHashMap<String, Object>();
    report.put("outcome", response.getOutcome().name());
    report.put("effect", response.getEffect().name());
    report.put("next", response.getNext().name());
    report.put("reason", response.getReason().name());
    report.put("sends", response.getSends());
    report.put("status", response.getResponse().getStatus());
    report.put("advice", word(advice));
    report.put("delay_known", !advice.after().isZero());
    return report;
  }

  /** The word that the reports of all languages use. */
  static String word(Advice advice) {
    return advice.step().name().toLowerCase().replace('_', ' ');
  }

  private Map<String, Object> success() {
    var response = broker.call(request(http("GET", "/ok")), HALF_A_MINUTE);
    var report = what(response);
    report.put("body", response.getResponse().getBody().toStringUtf8());
    report.put("attempts", response.getAttemptsCount());
    return report;
  }

  /** The upstream takes a POST and never answers: nobody knows what it did, and nothing may be sent again. */
  private Map<String, Object> unknown() {
    return what(broker.call(request(http("POST", "/lost").setBody(ByteString.copyFromUtf8("{}"))), HALF_A_MINUTE));
  }

  /** This client sets the only time limit there is. The answer comes before it, here a second before it, and is typed. */
  private Map<String, Object> deadline() {
    var allowed = Duration.ofSeconds(3);
    var reserve = com.google.protobuf.Duration.newBuilder().setSeconds(1);
    var request = request(http("GET", "/slow")).toBuilder().setReserve(reserve).build();
    var began = System.nanoTime();
    var report = what(broker.call(request, allowed));
    report.put("in_time", System.nanoTime() - began < allowed.toNanos());
    return report;
  }

  /** An answer above the limit is not taken, and of what it did nothing is known. A GET may be asked again. */
  private Map<String, Object> tooLarge() {
    var request = request(http("GET", "/large")).toBuilder().setMaxResponseBytes(1024).build();
    return what(broker.call(request, HALF_A_MINUTE));
  }

  /** What the broker does not take is an error that says for sure that nothing was sent. */
  private Map<String, Object> refused() {
    var request = request(http("GET", "/ok#fragment"));
    try {
      broker.call(request, HALF_A_MINUTE);
    } catch (StatusRuntimeException error) {
      var refusal = Refusal.explain(error);
      var report = new LinkedHashMap<String, Object>();
      report.put("code", error.getStatus().getCode().name());
      report.put("reason", refusal.reason());
      report.put("nothing_sent", refusal.nothingSent());
      report.put("fields", refusal.fields());
      report.put("advice", word(Advice.decideError(error, request, false)));
      return report;
    }
    throw new AssertionError("it was taken");
  }

  /** A header value that is not UTF-8 goes and comes as bytes. The upstream sends it back. */
  private Map<String, Object> rawValue() {
    var value = ByteString.copyFrom(new byte[] {'c', 'a', 'f', (byte) 0xe9});
    var sent = HttpHeader.newBuilder().setName("X-Echo").setRawValue(value);
    var response = broker.call(request(http("GET", "/echo").addHeaders(sent)), HALF_A_MINUTE);
    var report = what(response);
    report.put(
        "values",
        response.getResponse().getHeadersList().stream()
            .filter(header -> header.getName().equalsIgnoreCase("X-Echo"))
            .map(header -> List.of(header.getValue(), HexFormat.of().formatHex(header.getRawValue().toByteArray())))
            .toList());
    return report;
  }

  /** After five failures in a row the broker leaves the upstream alone, and says when to come again. */
  private Map<String, Object> breakerOpen() {
    var request = request(http("GET", "/broken")).toBuilder().setMaxAttempts(1).build();
    for (int failures = 0; failures < 20; failures++) {
      var response = broker.call(request, HALF_A_MINUTE);
      if (response.getOutcome() == Outcome.OUTCOME_BREAKER_OPEN) {
        var report = what(response);
        report.put("failures", failures);
        return report;
      }
    }
    throw new AssertionError("the breaker did not open");
  }
}
