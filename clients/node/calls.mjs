// Calls through a broker, from Node, over stubs that proto-loader makes of proto/sallyport/v1.
//
// usage: node calls.mjs PROTO BROKER UPSTREAM    (the directory proto/, host:port, base URL; prints a JSON report)

import path from 'node:path';
import process from 'node:process';

import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';
import protobuf from 'protobufjs';

const [proto, broker, upstream] = process.argv.slice(2);

const { sallyport } = grpc.loadPackageDefinition(
  loader.loadSync(path.join(proto, 'sallyport/v1/call_service.proto'), {
    includeDirs: [proto],
    keepCase: true, // the names of the documents
    enums: String,
    longs: Number,
    defaults: true,
  }),
);

// A gRPC retry policy would send again what the broker refused to send again.
const client = new sallyport.v1.CallService(broker, grpc.credentials.createInsecure(), { 'grpc.enable_retries': 0 });

// google.rpc.Status and the details that the broker uses (google/rpc/status.proto, error_details.proto), as far as they are read.
const rpc = protobuf.parse(`
  syntax = "proto3";
  package google.rpc;
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
  message BadRequest {
    message FieldViolation { string field = 1; string description = 2; }
    repeated FieldViolation field_violations = 1;
  }
`, { keepCase: true }).root.lookup('google.rpc');

// call makes one call; the time allowed is in seconds.
function call(request, seconds = 10) {
  return new Promise((resolve, reject) => {
    const options = { deadline: new Date(Date.now() + seconds * 1000) };
    client.Call(request, options, (error, response) => (error ? reject(error) : resolve(response)));
  });
}

function request(method, target, fields = {}) {
  return { request: { method, url: upstream + target, ...fields } };
}

// what is what a caller decides by.
function what(response) {
  const { outcome, effect, next, sends } = response;
  return { outcome, effect, next, sends, status: response.response?.status ?? 0 };
}

async function success() {
  const response = await call(request('GET', '/ok'));
  return { ...what(response), body: response.response.body.toString(), attempts: response.attempts.length };
}

// The upstream takes a POST and never answers: nobody knows what it did, and nothing may be sent again.
async function unknown() {
  return what(await call(request('POST', '/lost', { body: Buffer.from('{}') })));
}

// The only time limit there is is this client's own. The answer comes before it and is typed.
async function deadline() {
  const allowed = 1;
  const began = performance.now();
  const response = await call(request('GET', '/slow'), allowed);
  return { ...what(response), in_time: performance.now() - began < allowed * 1000 };
}

// What the broker does not take is an error that says for sure that nothing was sent.
async function refused() {
  try {
    await call(request('GET', '/ok#fragment'));
  } catch (error) {
    return { code: grpc.status[error.code], ...refusal(error) };
  }
  return { code: 'OK' };
}

// refusal reads the details of an error (google.rpc.Status in the trailers). Without them, an error says nothing of what was sent.
function refusal(error) {
  const found = {};
  const [status] = error.metadata.get('grpc-status-details-bin');
  for (const detail of status ? rpc.Status.decode(status).details : []) {
    switch (detail.type_url.split('/').pop()) {
      case 'google.rpc.ErrorInfo': {
        const info = rpc.ErrorInfo.decode(detail.value);
        Object.assign(found, { domain: info.domain, reason: info.reason, sent: info.metadata.sent });
        break;
      }
      case 'google.rpc.BadRequest':
        found.fields = rpc.BadRequest.decode(detail.value).field_violations.map((violation) => violation.field);
        break;
    }
  }
  return found;
}

// A header value that is not UTF-8 goes and comes as bytes: the upstream sends it back.
async function raw_value() {
  const sent = { name: 'X-Echo', raw_value: Buffer.from([0x63, 0x61, 0x66, 0xe9]) };
  const response = await call(request('GET', '/echo', { headers: [sent] }));
  const back = response.response.headers.filter((header) => header.name.toLowerCase() === 'x-echo');
  return { ...what(response), values: back.map((header) => [header.value, header.raw_value.toString('hex')]) };
}

const report = {};
for (const one of [success, unknown, deadline, refused, raw_value]) {
  report[one.name] = await one();
}
client.close();
console.log(JSON.stringify(report, null, 1));
