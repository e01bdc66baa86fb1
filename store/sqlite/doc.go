// Package sqlite keeps what must survive in one file, through SQLite: an [admin.Store].
//
// A write that returned nil is on the disk. One connection writes, a few read what was written last and never wait for it. Only this
// package opens the file: whoever opens and closes it elsewhere in the process takes away SQLite's locks (POSIX drops the locks of a
// process with any of its descriptors).
//
// SQLite keeps no sums of its own, so each row carries one, and a row that was damaged is an error and never a wrong answer. The
// audit is a chain besides: the sum of a record covers the one before it, see [Store.Verify].
package sqlite
