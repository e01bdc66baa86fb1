// Asks a package registry for what a deployment needs, through a broker. There is no loop here, no sleep and no list of statuses: they are
// the policy's. What the script does is read what the broker did, and decide by it.
//
// usage: node deploy.mjs BROKER REGISTRY    (host:port of the broker, base URL of the registry; exit 1 when a package cannot be had)

import { CallRequest, Client, decide, milliseconds } from '../../clients/typescript/build/index.js';

const [target, registry] = process.argv.slice(2);
if (target === undefined || registry === undefined) {
  console.error('usage: deploy.mjs BROKER REGISTRY');
  process.exit(2);
}

// The time for one package. Six attempts and the waits between them take 9.5 seconds if the registry answers at once.
const deadlineMs = 30_000;

// told is a word of the contract as people say it: OUTCOME_HTTP_ERROR is "http error".
function told(word, prefix) {
  return word.slice(prefix.length).replaceAll('_', ' ').toLowerCase();
}

// line is an attempt: what happened, and what the broker decided after it. An answer that broke off has a status, and a failure.
function line({ number, status, failure, decision }) {
  const happened = failure === 'FAILURE_UNSPECIFIED' ? status : told(failure, 'FAILURE_');
  const verdict = told(decision.verdict, 'VERDICT_');
  const wait = decision.wait ? `, wait ${milliseconds(decision.wait) / 1000}s` : '';
  return `  ${number}  ${String(happened).padEnd(15)}  ${verdict}: ${told(decision.reason, 'REASON_')}${wait}`;
}

async function fetchPackage(broker, name) {
  const request = CallRequest.fromPartial({ request: { method: 'GET', url: `${registry}/packages/${name}` } });
  const answer = await broker.call(request, deadlineMs);
  const advice = decide(answer);
  return {
    ok: advice.step === 'done',
    report: [
      `GET /packages/${name}`,
      ...answer.attempts.map(line),
      `  ${answer.outcome}, ${answer.effect}, ${answer.next}: ${advice.step}`,
    ].join('\n'),
  };
}

const broker = new Client(target);
try {
  // All at once, told in order.
  const packages = await Promise.all(['flaky', 'missing', 'down'].map((name) => fetchPackage(broker, name)));
  console.log(packages.map(({ report }) => report).join('\n\n'));
  process.exitCode = packages.every(({ ok }) => ok) ? 0 : 1;
} finally {
  broker.close();
}
