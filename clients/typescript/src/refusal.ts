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
  const [status] = error.metadata?.get('grpc-status-details-bin') ?? [];
  if (!(status instanceof Uint8Array)) {
    return refusal;
  }
  try {
    const { code, details } = Status.decode(status);
    return code === error.code ? details.reduce(read, refusal) : refusal;
  } catch {
    return refusal; // damaged on the way: it proves nothing
  }
}

function read(refusal: Refusal, detail: { typeUrl: string; value: Uint8Array }): Refusal {
  switch (detail.typeUrl.slice(detail.typeUrl.lastIndexOf('/') + 1)) {
    case 'google.rpc.ErrorInfo': {
      const info = ErrorInfo.decode(detail.value);
      return info.domain === domain ? { ...refusal, reason: info.reason, nothingSent: info.metadata['sent'] === 'false' } : refusal;
    }
    case 'google.rpc.BadRequest':
      return { ...refusal, fields: BadRequest.decode(detail.value).fieldViolations.map((violation) => violation.field) };
    case 'google.rpc.RetryInfo':
      return { ...refusal, retryAfterMs: milliseconds(RetryInfo.decode(detail.value).retryDelay) };
    default:
      return refusal;
  }
}
