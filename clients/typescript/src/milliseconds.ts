import { type Duration } from './gen/google/protobuf/duration.js';

/** milliseconds of a Duration; 0 when it is not there. */
export function milliseconds(duration: Duration | undefined): number {
  return duration ? duration.seconds * 1000 + duration.nanos / 1e6 : 0;
}
