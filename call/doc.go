// Package call holds the nouns of the product: what a caller asked for, what was tried, and what came back.
//
// A [Call] is what a caller asked for, once, with one deadline. An [Attempt] is one request on the wire for it, a [Result]
// what that attempt gave, and a [Final] why the whole call ended and what is known of its effect. The package decides nothing
// about repeating; it only knows which targets and headers can be asked for at all ([ParseTarget], [CleanHeaders]).
package call
