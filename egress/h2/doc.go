// Package h2 speaks HTTP/2 on one connection: it carries many requests at once, each on a stream of its own, tells what is proved of
// each, and obeys limits.
//
// It exists because the broker must see, count and charge every send, and say of each how far it got. Frames and header compression
// come from golang.org/x/net/http2; the streams are our own, since a client connection of a library keeps to itself what evidence
// is made of: which bytes were whose, the last stream of a GOAWAY, whose fault a broken connection is (docs/adr/0007-http2.md).
// Here one [Conn.RoundTrip] sends at most once, and never waits to send again.
//
// What is proved of a stream. [Response.Sent] is false only if not a byte of its HEADERS was given to the connection, or the
// connection's own Write said that it had taken none of them. An [Error] of kind [Refused] is the peer's REFUSED_STREAM and one of kind
// [GoneAway] its GOAWAY with a last stream below this one (RFC 9113 §6.8, §8.7), both only before anything of an answer came.
//
//	        HEADERS written        answer, RST, GOAWAY below, end, time
//	queued ─────────────────► open ────────────────────────────────────► over
//	  └────────────────────────────────────────────────────────────────────▲
//	        GOAWAY, end, time: not sent
//
// Two goroutines belong to a connection. The reader takes frames and settles streams; the writer alone numbers streams, compresses
// heads and writes, so that a peer that stops reading holds up neither the reader nor any attempt: each ends at its own time. [Conn.Close]
// waits for both.
//
// A peer cannot make it hold more than the limits of its streams, a header block of 1 MiB, and 64 KiB of answers to pings and settings;
// beyond those, or after 4096 frames in a row that carry nothing for anybody, the connection ends. PRIORITY and unknown
// frames are skipped, pushes are refused. Field names come out as HTTP/1.1 writes them (Content-Type), so that a caller sees the same
// answer whichever protocol brought it; fields that speak of the connection are kept here and dropped by the owner.
//
// The package knows no pool, no address and no policy, and reads the clock only where [Limits] end a wait.
package h2
