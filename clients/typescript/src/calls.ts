// Shows, call by call, what a client of a broker meets and how it decides.
//
// usage: node build/calls.js BROKER UPSTREAM    (host:port of the broker, base URL of the upstream of clients/upstream; prints a
// JSON report)

import { status, type ServiceError } from '@grpc/grpc-js';

import { CallRequest, type CallResponse, Client, decide, decideError, explain, type HttpRequest, Outcome } from './index.js';

const [target, upstream] = process.argv.slice(2);
if (target === undefined || upstream === undefined) {
  throw new Error('usage: calls.js BROKER UPSTREAM');
}
const broker = new Client(target);

function request(method: string, path: string, http: Partial<HttpRequest> = {}, fields: Partial<CallRequest> = {}): CallRequest {
  return CallRequest.fromPartial({ request: { method, url: upstream + path, ...http }, ...fields });
}

// what is what a caller decides by, and what it decides.
function what(response: CallResponse) {
  const { outcome, effect, next, reason, sends } = response;
  const advice = decide(response);
  return {
    outcome, effect, next, reason, sends,
    status: response.response?.status ?? 0,
    advice: advice.step,
    delay_known: 'afterMs' in advice && advice.afterMs > 0,
  };
}

async function success() {
  const response = await broker.call(request('GET', '/ok'), 30_000);
  return { ...what(response), body: response.response?.body.toString(), attempts: response.attempts.length };
}

// The upstream takes a POST and never answers: nobody knows what it did, and nothing may be sent again.
async function unknown() {
  return what(await broker.call(request('POST', '/lost', { body: Buffer.from('{}') }), 30_000));
}

// This client sets the only time limit there is. The answer comes before it, here a second before it, and is typed.
async function deadline() {
  const allowedMs = 3000;
  const began = performance.now();
  const response = await broker.call(request('GET', '/slow', {}, { reserve: { seconds: 1, nanos: 0 } }), allowedMs);
  return { ...what(response), in_time: performance.now() - began < allowedMs };
}

// An answer above the limit is not taken, and of what it did nothing is known. A GET may be asked again.
async function too_large() {
  return what(await broker.call(request('GET', '/large', {}, { maxResponseBytes: 1024 }), 30_000));
}

// What the broker does not take is an error that says for sure that nothing was sent.
async function refused() {
  const asked = request('GET', '/ok#fragment');
  try {
    await broker.call(asked, 30_000);
  } catch (thrown) {
    const error = thrown as ServiceError;
    const refusal = explain(error);
    return {
      code: status[error.code],
      reason: refusal.reason,
      nothing_sent: refusal.nothingSent,
      fields: refusal.fields,
      advice: decideError(error, asked).step,
    };
  }
  throw new Error('it was taken');
}

// A header value that is not UTF-8 goes and comes as bytes. The upstream sends it back.
async function raw_value() {
  const sent = { name: 'X-Echo', value: '', rawValue: Buffer.from([0x63, 0x61, 0x66, 0xe9]) };
  const response = await broker.call(request('GET', '/echo', { headers: [sent] }), 30_000);
  const back = response.response?.headers.filter((header) => header.name.toLowerCase() === 'x-echo') ?? [];
  return { ...what(response), values: back.map((header) => [header.value, header.rawValue.toString('hex')]) };
}

// After five failures in a row the broker leaves the upstream alone, and says when to come again.
async function breaker_open() {
  for (let failures = 0; failures < 20; failures++) {
    const response = await broker.call(request('GET', '/broken', {}, { maxAttempts: 1 }), 30_000);
    if (response.outcome === Outcome.OUTCOME_BREAKER_OPEN) {
      return { ...what(response), failures };
    }
  }
  throw new Error('the breaker did not open');
}

const report: Record<string, object> = {};
// breaker_open comes last: it leaves the upstream refused for a while.
for (const scene of [success, unknown, deadline, too_large, refused, raw_value, breaker_open]) {
  report[scene.name] = await scene();
}
broker.close();
console.log(JSON.stringify(report, null, 1));
