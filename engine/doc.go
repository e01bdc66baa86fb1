// Package engine is the attempt loop: one call in, one [call.Final] out.
//
// [Plan] decides and [Engine] acts. A Plan is arithmetic: it is told what happened and when, and answers with the next step.
// It has no clock, no randomness and no I/O of its own, so that every rule can be walked through at exact times and written
// down as a transcript (testdata). Engine.Do is the only reader of the clock here; it carries out one step after another.
//
//	Started ──► Send ──► Result ──► Send            a free resend, at once
//	   │                   │  └───► WaitUntil ──► Waited ──► Send
//	   └──► Final          └──────► Final              └───► Final
//
// The order in which a repeat is judged is that of semantics.md §2 and never changes: caller gone, success, worth repeating,
// safe to repeat, body replayable, attempts left, wait fits; what is shared between callers (budget, breaker, hold,
// concurrency slot) comes after these, so that a refusal of ours never hides what the upstream said.
package engine
