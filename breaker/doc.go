// Package breaker says whether an origin may be tried now.
//
// A [Breaker] watches the attempts at one origin under one set of settings, whoever makes them. When they fail it opens: attempts
// are refused at once, which spares callers their time and the origin the load that keeps it down. After a cooldown one attempt at
// a time, the probe, finds out whether the origin is back.
//
//	       enough failures, slow calls, or no answer at all
//	  ┌────────┐ ───────────────────────────────────────► ┌────────┐ ◄─────────────────┐
//	  │ closed │                                          │  open  │                   │
//	  │ admits │                                          │refuses │                   │ the probe fails:
//	  └────────┘                                          └────────┘                   │ the cooldown doubles
//	       ▲                                                  │ cooldown over,         │
//	       │                                                  │ a probe is admitted    │
//	       │            close_after probes succeed            ▼                        │
//	       └───────────────────────────────────────── ┌──────────────┐ ────────────────┘
//	                                                   │  half-open   │
//	                                                   │ admits leased│ ◄─┐ the probe is cancelled, lost,
//	                                                   │ single probes│ ──┘ or says nothing: the next may come
//	                                                   └──────────────┘
//
//	Force and Reset lead from every state to closed, Force to open as well. No other edge exists: closed never becomes half-open,
//	open never becomes closed by itself, and a [Breaker.Hint] moves nothing.
//
// Every admission is a [Ticket], settled once. Each transition starts a new generation: counters begin afresh, and what belongs to
// an older generation and comes in late is dropped. A probe is a lease as well, of its attempt's timeout plus a second, so that one
// that is never settled cannot wedge the breaker.
//
// The package reads no clock, rolls no dice and starts no goroutine: the time and a random number are arguments, transitions are
// results, to be announced by the caller once no lock is held. Instants are kept relative to the first one seen, so a wall clock
// that steps changes nothing as long as times carry their monotonic reading.
package breaker
