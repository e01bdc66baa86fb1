// Asks a broker for the answers and errors of a list, and prints what the client advises for each. The test (internal/polyglot)
// runs the like of it in every language, and holds them all to the same table.
//
// usage: node build/vectors.js BROKER LIST

import { readFileSync } from 'node:fs';

import { credentials, Metadata, status, type ServiceError } from '@grpc/grpc-js';

import { CallServiceClient } from './gen/sallyport/v1/call_service.js';
import { type Advice, CallRequest, Client, decide, decideError, RepeatSafety } from './index.js';

interface Vector {
  operation_id: string;
  method: string;
  never: boolean;
  under_contract: boolean;
}

async function ask(broker: Client, vector: Vector): Promise<Advice> {
  const request = CallRequest.fromPartial({
    request: { method: vector.method, url: 'http://upstream.example.com/' },
    operationId: vector.operation_id,
    repeatSafety: vector.never ? RepeatSafety.REPEAT_SAFETY_NEVER : RepeatSafety.REPEAT_SAFETY_UNSPECIFIED,
  });
  try {
    return decide(await broker.call(request, 30_000));
  } catch (error) {
    return decideError(error as ServiceError, request, vector.under_contract);
  }
}

// One call that fails, over a channel with a retry policy as many services have one: it arrives four times. No caller of a broker
// should have this; the test counts it, and so shows that it would see a client of ours do the same.
function stock(target: string): Promise<void> {
  const serviceConfig = {
    methodConfig: [{
      name: [{ service: 'sallyport.v1.CallService' }],
      retryPolicy: {
        maxAttempts: 4, initialBackoff: '0.01s', maxBackoff: '0.01s', backoffMultiplier: 1,
        retryableStatusCodes: ['UNAVAILABLE'],
      },
    }],
  };
  const stub = new CallServiceClient(target, credentials.createInsecure(), { 'grpc.service_config': JSON.stringify(serviceConfig) });
  return new Promise((resolve, reject) => {
    stub.call(CallRequest.fromPartial({ operationId: 'stock' }), new Metadata(), { deadline: Date.now() + 30_000 }, (error) => {
      stub.close();
      error?.code === status.UNAVAILABLE ? resolve() : reject(error ?? new Error('want UNAVAILABLE'));
    });
  });
}

const [target, list] = process.argv.slice(2);
if (target === undefined || list === undefined) {
  throw new Error('usage: vectors.js BROKER LIST');
}
const broker = new Client(target);
const given: Record<string, object> = {};
for (const vector of JSON.parse(readFileSync(list, 'utf8')) as Vector[]) {
  const advice = await ask(broker, vector);
  given[vector.operation_id] = {
    step: advice.step,
    after_ms: 'afterMs' in advice ? Math.round(advice.afterMs) : 0,
    operation_id: 'operationId' in advice ? advice.operationId : '',
  };
}
broker.close();
await stock(target);
console.log(JSON.stringify(given));
