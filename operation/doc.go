// Package operation keeps the identity of operations: an id names one logical operation of one caller, and what was asked under it
// once is not done twice by accident (semantics.md §3).
//
// The first call under an id leads: it is sent. A second one meanwhile joins it and waits for the same answer; a later one is told what
// was stored, and nothing is sent. Another payload under the id is a conflict. What ended without effect, or may be repeated, gives
// its id back.
//
//	            ┌──────── nothing happened, or it may be repeated ─────────┐
//	            ▼                                                          │
//	(free) ── Begin ──► RUNNING ──► answered ──────────────────────► FINISHED (kept: replayed)
//	            ▲          │  ▲                                            ▲
//	            │          │  └── answer of a late attempt ── RUNNING ─────┤  its caller has been told UNKNOWN meanwhile
//	            │          └────► sent, must not be repeated ────────► UNKNOWN (kept: never sent again)
//	            └──── "not applied", proved by the status probe ───────────┘
//
// A [Ledger] keeps it all durably. What leads is written before anything is sent, so that a crash between the send and the answer reads
// back as UNKNOWN and never as "not done".
package operation
