// Package hedge says how long a slow attempt may run alone before another may run beside it (semantics.md §8).
//
//	                 After
//	attempt ├────────────────────┼──────────────────┐ cancelled: LearnAtLeast(this long)
//	                             │                  │
//	hedge                        ├──────────────────┤ answered: Learn(this long)
//
// The wait is a fixed delay, or a percentile of what the origin's own answers took. A fixed delay is right for one origin on one
// day: too short for a slow one, and every call is sent twice; too long for a fast one, and the hedge saves nothing. A percentile
// says what share of the attempts is hedged and leaves the time to the origin. Dean and Barroso (The Tail at Scale, CACM 56(2),
// 2013): a second request that waits for the 95th percentile costs about 5 % more load and takes away most of the tail.
//
// A hedge that wins hides how long the attempt it beat would have taken: only that it was longer than the wait is known. Such
// a censored sample counts with the time it had. Were it left out, just the slow answers would be missing, the percentile would
// come down, more attempts would be hedged and more of the slow ones hidden: in the model of sim_test.go the wait for the 95th
// percentile shrinks to a third, and 15 % of the calls are hedged; with them it is 6 to 7 %. An attempt cancelled sooner than the
// percentile, as a hedge mostly is that loses, says nothing: it might have been on either side.
//
// The package reads no clock and starts no goroutine: the instant is a parameter. An instant older than one already seen counts as
// the latest seen, since callers read their clocks before they get the lock.
package hedge
