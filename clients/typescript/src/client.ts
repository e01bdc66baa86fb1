// The channel to a broker.

import { readFileSync } from 'node:fs';

import { credentials, Metadata, type ChannelCredentials, type ChannelOptions } from '@grpc/grpc-js';

import { CallServiceClient, type CallRequest, type CallResponse } from './gen/sallyport/v1/call_service.js';

// A reply may hold a body of 16 MiB and its headers.
const maxMessageBytes = 20 << 20;

// A retry by the library would send again what the broker refused to send again. Three locks, since each is easily lost: the
// service config has no retry policy, one that comes with name resolution is not read, and retries are off.
const options: ChannelOptions = {
  'grpc.service_config': readFileSync(new URL('service_config.json', import.meta.url), 'utf8'),
  'grpc.service_config_disable_resolution': 1,
  'grpc.enable_retries': 0,
  // A proxy named by the environment would read the token.
  'grpc.enable_http_proxy': 0,
  'grpc.max_receive_message_length': maxMessageBytes,
  'grpc.max_send_message_length': maxMessageBytes,
};

/** Makes calls through one broker. It connects when it is first used; close() ends it. */
export class Client {
  readonly #stub: CallServiceClient;

  /** Without channel credentials (credentials.createSsl() and its like) it speaks cleartext. */
  constructor(target: string, channel: ChannelCredentials = credentials.createInsecure()) {
    this.#stub = new CallServiceClient(target, channel, options);
  }

  /**
   * Makes one call. timeoutMs is all the time there is; the typed answer comes a little before its end. It rejects with a
   * ServiceError of @grpc/grpc-js, which speaks of the broker or of the way to it: see decideError.
   */
  call(request: CallRequest, timeoutMs: number): Promise<CallResponse> {
    return new Promise((resolve, reject) => {
      const deadline = Date.now() + timeoutMs;
      this.#stub.call(request, new Metadata(), { deadline }, (error, response) => (error ? reject(error) : resolve(response)));
    });
  }

  close(): void {
    this.#stub.close();
  }
}
