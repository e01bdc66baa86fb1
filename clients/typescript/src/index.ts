// Calls through a Sallyport broker: a client that resends nothing, and what to do with what comes back.
export { Client } from './client.js';
export { decide, decideError, type Advice, type Step } from './decide.js';
export { milliseconds } from './milliseconds.js';
export { explain, type Refusal } from './refusal.js';
export * from './gen/sallyport/v1/call.js';
export { CallRequest, CallResponse } from './gen/sallyport/v1/call_service.js';
