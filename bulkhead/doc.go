// Package bulkhead says how many attempts may run at once to an origin, and who waits for a slot (semantics.md §7). A slow upstream
// then holds a known number of slots and not the whole broker.
//
//	                          slot free, nobody waits
//	Enter ──────────────────────────────────────────────► Slot ──► Release ──► the next waiter's, or free
//	  │ none free                                          ▲
//	  ├─► Waiter ── C closes: granted ── Waiter.Slot ──────┘
//	  │     │ waiting                 └─ Leave ──► passed on to the next waiter
//	  │     └─ Leave (time up, caller gone) ──► out of the queue
//	  └─► *RefusedError: the queue is full for this criticality, or there is no time to wait
//
// The queue, from which the first is served next:
//
//	                   lines take turns, one slot each
//	  CRITICAL    ┌► a: ■ ■ ■   b: ■        ─┐   a line is what one caller has waiting, in order of arrival;
//	      │       └──────────────────────────┘   served, it goes behind the others
//	  NORMAL        b: ■ ■      c: ■ ■ ■ ■       only when no CRITICAL waits
//	      │
//	  SHEDDABLE     a: ■                         only when neither waits
//
//	held: 0 ─────────────── 70 % ────── 90 % ── max_pending
//	      all may join        │ not SHEDDABLE │ CRITICAL only
//
// The package has no goroutine, no timer and no clock: whoever called Enter waits, for C and its own limits, and then calls Leave.
package bulkhead
