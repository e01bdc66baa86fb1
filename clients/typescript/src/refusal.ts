// What an error of a call says.

import { type ServiceError } from '@grpc/grpc-js';

import { BadRequest, ErrorInfo, RetryInfo } from './gen/google/rpc/error_details.js';
import { Status } from './gen/google/rpc/status.js';
import { milliseconds } from './milliseconds.js';

// domain marks what the broker itself says, in contrast to a proxy on the way to it.
const domain = 'sallyport';

export interface Refusal {
  /** The broker's word for it; '' when the error is not the broker's. */
  reason: string;
  /** Proof that no byte of the call can have left the broker. False means unknown. */
  nothingSent: boolean;
  /** The fields of the request that cannot be taken. */
  fields: string[];
  /** 0 when not known. */
  retryAfterMs: number;
}

/** Reads the details of an error (google.rpc.Status in the trailers). Without them nothing is known. */
export function explain(error: ServiceError): Refusal {
  const refusal: Refusal = { reason: '', nothingSent: false, fields: [], retryAfterMs: 0 };
  const [bytes] = error.metadata?.get('grpc-status-details-bin') ?? [];
  const status = bytes instanceof Uint8Array ? decoded(Status, bytes) : undefined;
  if (status?.code !== error.code) {
    return refusal; // not the broker's
  }
  for (const { typeUrl, value } of status.details) {
    switch (typeUrl.slice(typeUrl.lastIndexOf('/') + 1)) {
      case 'google.rpc.ErrorInfo': {
        const info = decoded(ErrorInfo, value);
        if (info?.domain === domain) {
          refusal.reason = info.reason;
          refusal.nothingSent = info.metadata['sent'] === 'false';
        }
        break;
      }
      case 'google.rpc.BadRequest':
        refusal.fields = decoded(BadRequest, value)?.fieldViolations.map((violation) => violation.field) ?? [];
        break;
      case 'google.rpc.RetryInfo':
        refusal.retryAfterMs = milliseconds(decoded(RetryInfo, value)?.retryDelay);
        break;
    }
  }
  return refusal;
}

// decoded gives nothing for what was damaged on the way: it proves nothing.
function decoded<T>(type: { decode(bytes: Uint8Array): T }, bytes: Uint8Array): T | undefined {
  try {
    return type.decode(bytes);
  } catch {
    return undefined;
  }
}
