// Package policy turns rules into one flat Effective value per call.
//
// A [Rule] is one policy as it was written: sparse, every settings field a leaf that is set or absent. [Compile] makes an
// immutable [Table] of them. [Table.Match] finds the rules that cover a call, orders them from the most specific to the
// least, and gives for every leaf the value of the first rule that sets it, with the rule it came from. What matched once is
// kept, so that the next call with the same rules costs no allocation.
//
// The order of the rules is the order of the index (index.go): hosts, then path prefixes, then callers are looked up from
// the most specific key to the least, and what is left within one key is sorted when the table is made. Nothing is sorted
// while a call waits.
package policy
