// Package sqlite keeps what must survive in files of SQLite: an [admin.Store] in one, see [Open], and an [operation.Ledger] in another,
// see [OpenLedger].
//
// A write that returned nil is on the disk. One connection writes, a few read what was written last and never wait for it. Only this
// package opens a file: whoever opens and closes it elsewhere in the process takes away SQLite's locks (POSIX drops the locks of a
// process with any of its descriptors).
//
// SQLite keeps no sums of its own, so each row carries one, and a row that was damaged is an error and never a wrong answer. The
// audit is a chain besides: the sum of a record covers the one before it, see [Store.Verify].
//
// What a ledger does not read of an operation is sealed (package seal), each of request, details and body by itself, bound to caller, id
// and the name of its column. What does not open, since its key is not there or it was changed, is [ErrDamaged] and names the operation.
package sqlite
