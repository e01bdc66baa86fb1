package io.github.sallyport.calls;

import com.google.gson.Gson;
import io.github.sallyport.client.Advice;
import io.github.sallyport.client.SallyportClient;
import io.github.sallyport.v1.CallRequest;
import io.github.sallyport.v1.CallServiceGrpc;
import io.github.sallyport.v1.HttpRequest;
import io.github.sallyport.v1.RepeatSafety;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Asks a broker for the answers and errors of a list, and prints what the client advises for each. The test (internal/polyglot) runs
 * the like of it in every language, and holds them all to the same table.
 *
 * <p>Arguments: host:port of the broker, the file of the list.
 */
public final class Vectors {
  /** One call of the list; the names are those of the file. */
  private record Vector(String operation_id, String method, boolean never, boolean under_contract) {}

  private record Given(String step, long after_ms, String operation_id) {}

  private static final Map<String, ?> RETRY_POLICY =
      Map.of(
          "methodConfig",
          List.of(
              Map.of(
                  "name", List.of(Map.of("service", CallServiceGrpc.SERVICE_NAME)),
                  "retryPolicy",
                      Map.of(
                          "maxAttempts", 4.0,
                          "initialBackoff", "0.01s",
                          "maxBackoff", "0.01s",
                          "backoffMultiplier", 1.0,
                          "retryableStatusCodes", List.of("UNAVAILABLE")))));

  public static void main(String[] args) throws IOException {
    var given = new LinkedHashMap<String, Given>();
    try (var broker = new SallyportClient(args[0])) {
      for (var vector : new Gson().fromJson(Files.readString(Path.of(args[1])), Vector[].class)) {
        var advice = ask(broker, vector);
        given.put(vector.operation_id, new Given(Calls.word(advice), advice.after().toMillis(), advice.operationId()));
      }
    }
    stock(args[0]);
    System.out.println(new Gson().toJson(given));
  }

  private static Advice ask(SallyportClient broker, Vector vector) {
    var request =
        CallRequest.newBuilder()
            .setRequest(HttpRequest.newBuilder().setMethod(vector.method).setUrl("http://upstream.example.com/"))
            .setOperationId(vector.operation_id)
            .setRepeatSafety(vector.never ? RepeatSafety.REPEAT_SAFETY_NEVER : RepeatSafety.REPEAT_SAFETY_UNSPECIFIED)
            .build();
    try {
      return Advice.decide(broker.call(request, Duration.ofSeconds(30)));
    } catch (StatusRuntimeException error) {
      return Advice.decideError(error, request, vector.under_contract);
    }
  }

  /**
   * Makes one call that fails, over a channel with a retry policy as many services have one: it arrives four times. No caller of a
   * broker should have this; the test counts it, and so shows that it would see a client of ours do the same.
   */
  private static void stock(String target) {
    var channel =
        Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).defaultServiceConfig(RETRY_POLICY).build();
    try {
      var request = CallRequest.newBuilder().setOperationId("stock").build();
      CallServiceGrpc.newBlockingStub(channel).withDeadlineAfter(Duration.ofSeconds(30)).call(request);
      throw new AssertionError("want UNAVAILABLE");
    } catch (StatusRuntimeException error) {
      if (error.getStatus().getCode() != Status.Code.UNAVAILABLE) {
        throw error;
      }
    } finally {
      channel.shutdownNow();
    }
  }
}
