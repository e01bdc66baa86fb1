// Package deferred keeps calls until they are done: a call that was accepted is never lost, and one that must not be repeated is never
// sent twice (semantics.md §11).
//
//	             ┌────────────── refused by breaker, hold, budget, concurrency: no attempt is spent ──────────────┐
//	             ▼                                                                                                │
//	Submit ──► PENDING ──► SENDING ──► answered with a success ────────────────────────────────────► COMPLETED    │
//	             │           │ ▲ └──► an answer or failure that stops it, retries run out, expired ──► FAILED ──┐ │
//	             │           │ │ └──► sent, nothing definitive, must not be repeated ────────────────► UNKNOWN ─┤ │
//	             │           ▼ │                                                                                │ │
//	             └─────► RETRYING ◄──────────────────── Redrive: same key, history kept ────────────────────────┘ │
//	                       │ ▲────────────────────────────────────────────────────────────────────────────────────┘
//	                       └──► Cancel ──► CANCELLED
//
// A status probe may make an UNKNOWN one COMPLETED, or RETRYING where it proves that nothing was done.
//
// "An attempt begins" is on the disk before the first byte of it leaves. After a crash, a call with an attempt that never ended is repeated
// under the same key if it may be, and is parked as UNKNOWN if it may not.
package deferred
