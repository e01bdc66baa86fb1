package io.github.sallyport.client;

import com.google.gson.Gson;
import io.github.sallyport.v1.CallRequest;
import io.github.sallyport.v1.CallResponse;
import io.github.sallyport.v1.CallServiceGrpc;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Makes calls through one broker. It connects when it is first used; threads may share it; close ends it. */
public final class SallyportClient implements AutoCloseable {
  /** A reply may hold a body of 16 MiB and its headers. */
  private static final int MAX_MESSAGE_BYTES = 20 << 20;

  private final ManagedChannel channel;
  private final CallServiceGrpc.CallServiceBlockingStub stub;

  /** In cleartext, as a broker on loopback is reached. */
  public SallyportClient(String target) {
    this(target, InsecureChannelCredentials.create());
  }

  public SallyportClient(String target, ChannelCredentials credentials) {
    // A retry by the library would send again what the broker refused to send again. Three locks, since each is easily lost: the
    // service config has no retry policy, one that comes with name resolution is not read, and retries are off.
    channel =
        Grpc.newChannelBuilder(target, credentials)
            .defaultServiceConfig(serviceConfig())
            .disableServiceConfigLookUp()
            .disableRetry()
            .proxyDetector(address -> null) // a proxy named by the environment would read the token
            .maxInboundMessageSize(MAX_MESSAGE_BYTES)
            .build();
    stub = CallServiceGrpc.newBlockingStub(channel);
  }

  /**
   * Makes one call.
   *
   * @param timeout all the time there is; the typed answer comes a little before its end
   * @throws io.grpc.StatusRuntimeException speaks of the broker or of the way to it: see {@link Advice#decideError}
   */
  public CallResponse call(CallRequest request, Duration timeout) {
    return stub.withDeadlineAfter(timeout).call(request);
  }

  /** Ends the connection; calls in flight end with an error. */
  @Override
  public void close() {
    channel.shutdownNow();
    try {
      channel.awaitTermination(10, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  @SuppressWarnings("unchecked")
  private static Map<String, ?> serviceConfig() {
    try (var file = SallyportClient.class.getResourceAsStream("service_config.json")) {
      return new Gson().fromJson(new InputStreamReader(file, StandardCharsets.UTF_8), Map.class);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
