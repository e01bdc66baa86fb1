// Package egress makes one attempt over HTTP and proves how far it got.
//
// [Transport.Send] takes a connection from the pool or makes one (resolve, guard, connect, TLS), writes the request, reads the
// answer and says what is proved: EVIDENCE_NOT_SENT only when the connection accepted not one byte of the request, counted
// above TLS. Nothing in here sends anything twice: net/http does so by itself on reused connections, which is why HTTP/1.1 is
// spoken by egress/h1 on connections of our own, and HTTP/2 by egress/h2 (docs/adr).
//
// A connection of HTTP/1.1 serves one attempt at a time and rests in the pool between them. One of HTTP/2, a trunk, serves many at
// once; trunks makes them one after the other, so that a burst shares what one handshake gave.
package egress
