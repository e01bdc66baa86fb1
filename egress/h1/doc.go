// Package h1 speaks HTTP/1.1 on one connection: it writes a request, reads the answer, counts bytes and obeys limits.
//
// It exists because the broker must see, count and charge every send, which net/http does not let it do: there a dead
// reused connection makes the transport repeat a request by itself, and answers that break the framing rules of RFC 9112
// are repaired without a word. Here one [Conn.Send] writes at most once, [Conn.Written] tells how much of it the
// connection took, and whatever leaves the end of an answer in doubt is an [Error].
//
// Requests have a known or an empty body. Answers are read by length, chunks or until the connection ends; interim
// answers are skipped, trailers kept apart. Lines of a head may end in LF alone (RFC 9112 §2.2 allows a recipient that),
// those of the chunked coding may not. The bytes of a connection are judged in the order they come, so the way the
// network cuts them never changes a verdict.
//
// Every answer net/http refuses is refused here, but for a Content-Length that lists one value several times (RFC 9112
// §6.3). Refused beyond that: versions other than HTTP/1.0 and 1.1; a status line with other blanks than the grammar's or a
// control byte; a status outside 100–599, and 101; field names with blanks; control bytes in values, a bare CR among them;
// Content-Length beside Transfer-Encoding; Transfer-Encoding in HTTP/1.0; blanks after a chunk size, control bytes in its
// extensions, LF alone in trailers; more than 100 interim answers, chunk lines over 1 KiB, chunk extensions over 8 KiB.
//
// The package starts no goroutine, knows no pool, no address and no policy, and reads the clock only where
// [Limits] ask for a time-out of their own.
package h1
