package h1_test

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/egress/h1"
)

// answer is one row: what the peer sends, and what must be made of it.
type answer struct {
	name, raw string
	method    string // GET when empty
	end       error  // how the stream ends; io.EOF when nil

	kind      h1.Kind // 0: a complete answer
	phase     h1.Phase
	status    int // also after a failure: what the head had told
	body      string
	fields    []h1.Field // not compared when nil
	trailers  []h1.Field
	reusable  bool
	close     bool
	keepAlive time.Duration
}

const ok = "HTTP/1.1 200 OK\r\n"

func answers() []answer {
	reset := &os.SyscallError{Syscall: "read", Err: syscall.ECONNRESET}
	// A row of a peer that says no more while the connection stays up ends in silence, not in EOF.
	silence := os.ErrDeadlineExceeded
	long := strings.Repeat("y", 20_000)

	return []answer{
		// Answers as they should be.
		{name: "by length", raw: ok + "Content-Length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", reusable: true},
		{name: "empty by length", raw: ok + "Content-Length: 0\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "chunked", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", end: silence, status: 200, body: "ok", reusable: true},
		{name: "chunked in any case", raw: ok + "transfer-ENCODING:  CHUNKED \r\n\r\nA\r\n0123456789\r\na\r\n0123456789\r\n00\r\n\r\n", end: silence, status: 200, body: "01234567890123456789", reusable: true},
		{name: "chunked and empty", raw: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "chunk extensions mean nothing", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2;a=\"b\";c\r\nok\r\n0;last\r\n\r\n", end: silence, status: 200, body: "ok", reusable: true},
		{
			name: "trailers stand apart", raw: ok + "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n", end: silence, status: 200, body: "ok",
			trailers: []h1.Field{{Name: "X-Sum", Value: "1"}, {Name: "X-Sum", Value: "2"}}, reusable: true,
		},
		{
			name: "framing in trailers is left out", raw: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\nConnection: close\r\nX-A: 1\r\n\r\n", end: silence, status: 200,
			trailers: []h1.Field{{Name: "X-A", Value: "1"}}, reusable: true,
		},
		{name: "until close", raw: ok + "\r\nto the end", status: 200, body: "to the end", close: true},
		{name: "until close, nothing", raw: ok + "\r\n", status: 200, close: true},
		{name: "until close, long", raw: ok + "\r\n" + long, status: 200, body: long, close: true},
		{name: "long by length", raw: ok + "Content-Length: 20000\r\n\r\n" + long, end: silence, status: 200, body: long, reusable: true},
		{name: "long by chunks", raw: ok + "Transfer-Encoding: chunked\r\n\r\n4e20\r\n" + long + "\r\n4E20\r\n" + long + "\r\n0\r\n\r\n", end: silence, status: 200, body: long + long, reusable: true},
		{name: "a field longer than the buffer", raw: ok + "X-Long: " + long + "\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, fields: []h1.Field{{Name: "X-Long", Value: long}, {Name: "Content-Length", Value: "0"}}, reusable: true},
		{name: "no reason", raw: "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "no reason and no blank", raw: "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "a reason in another language", raw: "HTTP/1.1 200 \xc3\xa7a va\tbien\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "lines of LF alone", raw: "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", end: silence, status: 200, body: "ok", reusable: true},
		{name: "599 is a status", raw: "HTTP/1.1 599 x\r\nContent-Length: 0\r\n\r\n", end: silence, status: 599, reusable: true},
		{name: "205 may have a body", raw: "HTTP/1.1 205 x\r\nContent-Length: 2\r\n\r\nok", end: silence, status: 205, body: "ok", reusable: true},
		{name: "three interim answers", raw: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 3) + ok + "Content-Length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", fields: []h1.Field{{Name: "Content-Length", Value: "2"}}, reusable: true},
		{name: "an interim answer says nothing of the final one", raw: "HTTP/1.1 100 Continue\r\nConnection: close\r\nKeep-Alive: timeout=3\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n", end: silence, status: 200, reusable: true},

		// No body whatever the fields say.
		{name: "HEAD", method: "HEAD", raw: ok + "Content-Length: 5\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "HEAD, chunked", method: "HEAD", raw: ok + "Transfer-Encoding: chunked\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "HEAD, no framing", method: "HEAD", raw: ok + "\r\n", end: silence, status: 200, reusable: true},
		{name: "HEAD, length over every limit", method: "HEAD", raw: ok + "Content-Length: 1000000000000\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "head is another method", method: "head", raw: ok + "Content-Length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", reusable: true},
		{name: "204 with a length", raw: "HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n", end: silence, status: 204, reusable: true},
		{name: "304 with a length", raw: "HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", end: silence, status: 304, reusable: true},
		{name: "204 with a body is surplus", raw: "HTTP/1.1 204 x\r\nContent-Length: 2\r\n\r\nok", end: silence, status: 204},
		{name: "204 with two framings", raw: "HTTP/1.1 204 x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseHead},
		{name: "HEAD with two framings", method: "HEAD", raw: ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseHead},
		{name: "an interim answer with two framings", raw: "HTTP/1.1 103 x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + ok + "\r\n", kind: h1.Malformed, phase: h1.PhaseHead},

		// Persistence.
		{name: "Connection: close", raw: ok + "Connection: x, Close\r\nContent-Length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", close: true},
		{name: "HTTP/1.0 closes", raw: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", close: true},
		{name: "HTTP/1.0 kept alive", raw: "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", reusable: true},
		{name: "close wins", raw: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", close: true},
		{name: "Keep-Alive tells the time", raw: ok + "Keep-Alive: max=100, Timeout = 5\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, keepAlive: 5 * time.Second, reusable: true},
		{name: "Keep-Alive beyond reason", raw: ok + "Keep-Alive: timeout=9223372036854775807\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, keepAlive: 24 * time.Hour, reusable: true},
		{name: "Keep-Alive of no number", raw: ok + "Keep-Alive: timeout=-1\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, reusable: true},
		{name: "Keep-Alive of zero", raw: ok + "Keep-Alive: timeout=0\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, close: true},
		{name: "surplus after a length", raw: ok + "Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", end: silence, status: 200, body: "ok"},
		{name: "surplus after chunks", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nx", end: silence, status: 200, body: "ok"},

		// Values.
		{name: "a folded value", raw: ok + "X-A: b\r\n X-Admin: yes\r\nContent-Length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", fields: []h1.Field{{Name: "X-A", Value: "b X-Admin: yes"}, {Name: "Content-Length", Value: "2"}}, reusable: true},
		{name: "folded thrice, one of them empty", raw: ok + "X-A: b \r\n\t c\r\n \t\r\n\td \r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, fields: []h1.Field{{Name: "X-A", Value: "b c d"}, {Name: "Content-Length", Value: "0"}}, reusable: true},
		{name: "all of the value folded", raw: ok + "X-A:\r\n b\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, fields: []h1.Field{{Name: "X-A", Value: "b"}, {Name: "Content-Length", Value: "0"}}, reusable: true},
		{name: "a fold before any field", raw: ok + " X-A: b\r\nContent-Length: 0\r\n\r\n", kind: h1.Malformed},
		{name: "a folded length", raw: ok + "Content-Length: 2\r\n 3\r\n\r\nok", kind: h1.Malformed},
		{name: "bytes outside UTF-8", raw: ok + "X-Note: a\xffb\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, fields: []h1.Field{{Name: "X-Note", Value: "a\xffb"}, {Name: "Content-Length", Value: "0"}}, reusable: true},
		{name: "an empty value, a tab within", raw: ok + "X-A:\r\nX-B:\ta\tb \r\nX-A: :\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, fields: []h1.Field{{Name: "X-A"}, {Name: "X-B", Value: "a\tb"}, {Name: "X-A", Value: ":"}, {Name: "Content-Length", Value: "0"}}, reusable: true},
		{name: "NUL in a value", raw: ok + "X-A: a\x00b\r\n\r\n", kind: h1.Malformed},
		{name: "NUL in a fold", raw: ok + "X-A: a\r\n \x00b\r\n\r\n", kind: h1.Malformed},
		{name: "DEL in a value", raw: ok + "X-A: a\x7fb\r\n\r\n", kind: h1.Malformed},
		{name: "escape in a value", raw: ok + "X-A: a\x1bb\r\n\r\n", kind: h1.Malformed},
		{name: "bare CR in a value", raw: ok + "X-A: a\rX-B: b\r\n\r\n", kind: h1.Malformed},
		{name: "two CR before LF", raw: ok + "X-A: a\r\r\n\r\n", kind: h1.Malformed},
		{name: "a CR instead of the empty line", raw: ok + "X-A: a\r\n\r\r\n\r\n", kind: h1.Malformed},

		// Names.
		{name: "a blank before the colon", raw: ok + "X-Role : admin\r\nContent-Length: 2\r\n\r\nok", kind: h1.Malformed},
		{name: "a blank within", raw: ok + "X Role: admin\r\n\r\n", kind: h1.Malformed},
		{name: "no colon", raw: ok + "X-Role\r\n\r\n", kind: h1.Malformed},
		{name: "no name", raw: ok + ": admin\r\n\r\n", kind: h1.Malformed},
		{name: "a name outside ASCII", raw: ok + "X-\xc3\xa9: a\r\n\r\n", kind: h1.Malformed},
		{name: "a name with NUL", raw: ok + "X-\x00: a\r\n\r\n", kind: h1.Malformed},
		{name: "a name with parentheses", raw: ok + "X-(a): a\r\n\r\n", kind: h1.Malformed},
		{name: "every tchar", raw: ok + "!#$%&'*+-.^_`|~09azAZ: a\r\nContent-Length: 0\r\n\r\n", end: silence, status: 200, fields: []h1.Field{{Name: "!#$%&'*+-.^_`|~09azAZ", Value: "a"}, {Name: "Content-Length", Value: "0"}}, reusable: true},

		// Status lines.
		{name: "another protocol that waits", raw: "SSH-2.0-OpenSSH_9.9\r\n", end: silence, kind: h1.Malformed},
		{name: "another protocol without a line", raw: "\x15\x03\x03\x00\x02", end: silence, kind: h1.Malformed},
		{name: "HTTP/2.0", raw: "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", kind: h1.Malformed},
		{name: "HTTP/1.7", raw: "HTTP/1.7 200 OK\r\nContent-Length: 2\r\n\r\nok", kind: h1.Malformed},
		{name: "HTTP/1.10", raw: "HTTP/1.10 200 OK\r\nContent-Length: 2\r\n\r\nok", kind: h1.Malformed},
		{name: "HTTP/0.9", raw: "HTTP/0.9 200 OK\r\n\r\n", kind: h1.Malformed},
		{name: "http in small letters", raw: "http/1.1 200 OK\r\n\r\n", kind: h1.Malformed},
		{name: "an empty line first", raw: "\r\nHTTP/1.1 200 OK\r\n\r\n", kind: h1.Malformed},
		{name: "two blanks before the status", raw: "HTTP/1.1  200 OK\r\n\r\n", kind: h1.Malformed},
		{name: "a tab before the status", raw: "HTTP/1.1\t200 OK\r\n\r\n", kind: h1.Malformed},
		{name: "a status of two digits", raw: "HTTP/1.1 20 OK\r\n\r\n", kind: h1.Malformed},
		{name: "a status of four digits", raw: "HTTP/1.1 2000 OK\r\n\r\n", kind: h1.Malformed},
		{name: "a signed status", raw: "HTTP/1.1 +20 OK\r\n\r\n", kind: h1.Malformed},
		{name: "000", raw: "HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n", kind: h1.Malformed},
		{name: "099", raw: "HTTP/1.1 099 x\r\nContent-Length: 0\r\n\r\n", kind: h1.Malformed},
		{name: "600", raw: "HTTP/1.1 600 x\r\nContent-Length: 0\r\n\r\n", kind: h1.Malformed},
		{name: "999", raw: "HTTP/1.1 999 x\r\nContent-Length: 0\r\n\r\n", kind: h1.Malformed},
		{name: "101", raw: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", kind: h1.Malformed},
		{name: "NUL in the reason", raw: "HTTP/1.1 200 O\x00K\r\n\r\n", kind: h1.Malformed},
		{name: "bare CR in the status line", raw: "HTTP/1.1 200 O\rK\r\n\r\n", kind: h1.Malformed},
		{name: "a status line and no more than its version", raw: "HTTP/1.1\r\n\r\n", kind: h1.Malformed},

		// Lengths.
		{name: "two different lengths", raw: ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", kind: h1.Malformed},
		{name: "equal lengths", raw: ok + "Content-Length: 2\r\ncontent-length: 2\r\n\r\nok", end: silence, status: 200, body: "ok", reusable: true},
		{name: "a list of equal lengths", raw: ok + "Content-Length: 2, 2\r\n\r\nok", end: silence, status: 200, body: "ok", reusable: true},
		{name: "a list of different lengths", raw: ok + "Content-Length: 2, 3\r\n\r\nabc", kind: h1.Malformed},
		{name: "equal lengths written differently", raw: ok + "Content-Length: 2\r\nContent-Length: 02\r\n\r\nok", kind: h1.Malformed},
		{name: "a list with a hole", raw: ok + "Content-Length: 2,\r\n\r\nok", kind: h1.Malformed},
		{name: "+2", raw: ok + "Content-Length: +2\r\n\r\nab", kind: h1.Malformed},
		{name: "-1", raw: ok + "Content-Length: -1\r\n\r\nab", kind: h1.Malformed},
		{name: "0x2", raw: ok + "Content-Length: 0x2\r\n\r\nab", kind: h1.Malformed},
		{name: "2 0", raw: ok + "Content-Length: 2 0\r\n\r\nab", kind: h1.Malformed},
		{name: "an empty length", raw: ok + "Content-Length:\r\n\r\nab", kind: h1.Malformed},
		{name: "the largest length", raw: ok + "Content-Length: 9223372036854775807\r\n\r\nab", kind: h1.TooLarge, phase: h1.PhaseBody, status: 200},
		{name: "a length beyond 63 bits", raw: ok + "Content-Length: 9223372036854775808\r\n\r\nab", kind: h1.Malformed},
		{name: "a length that wraps to 2", raw: ok + "Content-Length: 18446744073709551618\r\n\r\nab", kind: h1.Malformed},

		// Codings.
		{name: "both framings", raw: ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed},
		{name: "xchunked", raw: ok + "Transfer-Encoding: xchunked\r\n\r\nok", kind: h1.Malformed},
		{name: "identity, chunked", raw: ok + "Transfer-Encoding: identity, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed},
		{name: "gzip, chunked", raw: ok + "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed},
		{name: "chunked, chunked", raw: ok + "Transfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed},
		{name: "chunked twice", raw: ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed},
		{name: "gzip, then chunked", raw: ok + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed},
		{name: "chunked with a parameter", raw: ok + "Transfer-Encoding: chunked;q=1\r\n\r\n2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed},
		{name: "an empty coding", raw: ok + "Transfer-Encoding:\r\n\r\nok", kind: h1.Malformed},
		{name: "chunked in HTTP/1.0", raw: "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed},
		{name: "framing announced for the trailers", raw: ok + "Transfer-Encoding: chunked\r\nTrailer: x, content-length\r\n\r\n0\r\n\r\n", kind: h1.Malformed},

		// Chunks.
		{name: "a size of no number", raw: ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "no size", raw: ok + "Transfer-Encoding: chunked\r\n\r\n\r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "a signed size", raw: ok + "Transfer-Encoding: chunked\r\n\r\n+2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "a size in C", raw: ok + "Transfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "a blank before the size", raw: ok + "Transfer-Encoding: chunked\r\n\r\n 2\r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "a blank after the size", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2 \r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "a size of 17 digits", raw: ok + "Transfer-Encoding: chunked\r\n\r\n00000000000000002\r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "a size of 16 digits", raw: ok + "Transfer-Encoding: chunked\r\n\r\n0000000000000002\r\nok\r\n0\r\n\r\n", end: silence, status: 200, body: "ok", reusable: true},
		{name: "the largest size", raw: ok + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nok\r\n0\r\n\r\n", kind: h1.TooLarge, phase: h1.PhaseBody, status: 200},
		{name: "a size line of LF alone", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "a bare CR in an extension", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2;a\rb\r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "NUL in an extension", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2;\x00\r\nok\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "data longer than its size", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\noka\r\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "data ended by LF alone", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\n0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "data ended by CR alone", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r0\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseBody, status: 200},
		{name: "a trailer of LF alone", raw: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: 1\n\r\n", kind: h1.Malformed, phase: h1.PhaseTrailers, status: 200},
		{name: "the end of chunks in LF alone", raw: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\n", kind: h1.Malformed, phase: h1.PhaseTrailers, status: 200},
		{name: "a trailer with a blank in its name", raw: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nX A: 1\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseTrailers, status: 200},
		{name: "a trailer that begins with a fold", raw: ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n X-A: 1\r\n\r\n", kind: h1.Malformed, phase: h1.PhaseTrailers, status: 200},

		// Ends that come too soon.
		{name: "not a byte", raw: "", kind: h1.Lost, phase: h1.PhaseHead},
		{name: "not a byte, reset", raw: "", end: reset, kind: h1.Lost, phase: h1.PhaseHead},
		{name: "not a byte, silence", raw: "", end: silence, kind: h1.Timeout, phase: h1.PhaseHead},
		{name: "a piece of the version", raw: "HTT", kind: h1.Lost, phase: h1.PhaseHead},
		{name: "a piece of the head", raw: ok + "Content-Len", kind: h1.Lost, phase: h1.PhaseHead},
		{name: "a head without its empty line", raw: ok + "Content-Length: 0\r\n", kind: h1.Lost, phase: h1.PhaseHead},
		{name: "an interim answer alone", raw: "HTTP/1.1 100 Continue\r\n\r\n", kind: h1.Lost, phase: h1.PhaseHead},
		{name: "a body shorter than declared", raw: ok + "Content-Length: 20\r\n\r\nab", kind: h1.Lost, phase: h1.PhaseBody, status: 200},
		{name: "a declared body that never begins", raw: ok + "Content-Length: 20\r\n\r\n", kind: h1.Lost, phase: h1.PhaseBody, status: 200},
		{name: "a body that stops", raw: ok + "Content-Length: 20\r\n\r\nab", end: silence, kind: h1.Timeout, phase: h1.PhaseBody, status: 200},
		{name: "chunks without the last", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", kind: h1.Lost, phase: h1.PhaseBody, status: 200},
		{name: "a chunk cut short", raw: ok + "Transfer-Encoding: chunked\r\n\r\n9\r\nok", kind: h1.Lost, phase: h1.PhaseBody, status: 200},
		{name: "the last chunk without the empty line", raw: ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", kind: h1.Lost, phase: h1.PhaseTrailers, status: 200},
		{name: "until close, ended by a reset", raw: ok + "\r\nto the e", end: reset, kind: h1.Lost, phase: h1.PhaseBody, status: 200},
		{name: "until close, ended without close_notify", raw: ok + "\r\nto the e", end: io.ErrUnexpectedEOF, kind: h1.Lost, phase: h1.PhaseBody, status: 200},
		{name: "until close, ended by a deadline", raw: ok + "\r\nto the e", end: silence, kind: h1.Timeout, phase: h1.PhaseBody, status: 200},
	}
}

func TestAnswersAreJudgedAloneByTheirBytes(t *testing.T) {
	deliveries := []struct {
		name string
		peer func(raw string) *peer
	}{
		{"whole", whole},
		{"dripping", dripping},
		{"end beside the last byte", func(raw string) *peer {
			p := whole(raw)
			p.endBeside = true
			return p
		}},
		{"in pieces of 7", func(raw string) *peer {
			p := &peer{takes: -1}
			for piece := range slices.Chunk([]byte(raw), 7) {
				p.fragments = append(p.fragments, piece)
			}
			return p
		}},
	}
	for _, a := range answers() {
		t.Run(a.name, func(t *testing.T) {
			for _, d := range deliveries {
				p := d.peer(a.raw)
				p.end = a.end
				method := a.method
				if method == "" {
					method = "GET"
				}
				c := h1.New(p)
				r, err := exchange(t, c, method, roomy())
				if got := kindOf(t, err); got != a.kind {
					t.Fatalf("%s: kind %v, want %v (%v)", d.name, got, a.kind, err)
				}
				if e, ok := errors.AsType[*h1.Error](err); ok && a.phase != 0 && e.Phase != a.phase {
					t.Errorf("%s: phase %v, want %v", d.name, e.Phase, a.phase)
				}
				if r.Status != a.status || string(r.Body) != a.body {
					t.Errorf("%s: %d %.40q, want %d %.40q", d.name, r.Status, r.Body, a.status, a.body)
				}
				if r.Begun != (a.raw != "") {
					t.Errorf("%s: begun %v", d.name, r.Begun)
				}
				if a.fields != nil && !slices.Equal(r.Fields, a.fields) {
					t.Errorf("%s: fields %q, want %q", d.name, r.Fields, a.fields)
				}
				if !slices.Equal(r.Trailers, a.trailers) {
					t.Errorf("%s: trailers %q, want %q", d.name, r.Trailers, a.trailers)
				}
				if a.kind == 0 && (r.Close != a.close || r.KeepAlive != a.keepAlive) {
					t.Errorf("%s: close %v keep-alive %v, want %v %v", d.name, r.Close, r.KeepAlive, a.close, a.keepAlive)
				}
				// A surplus that has not arrived yet is for Idle to find, and an end that came with the answer spoils the
				// connection; the rest is the same however the bytes come.
				reusable := a.reusable && !p.endBeside
				if unread := len(p.fragments) > 0; !unread && c.Reusable() != reusable {
					t.Errorf("%s: reusable %v, want %v", d.name, c.Reusable(), reusable)
				}
			}
		})
	}
}

func TestErrorsNeverQuoteThePeer(t *testing.T) {
	for _, raw := range []string{
		"hunter2 is the word\r\n\r\n",
		ok + "Set-Cookie : hunter2\r\n\r\n",
		ok + "Content-Length: hunter2\r\n\r\n",
		ok + "Transfer-Encoding: chunked\r\n\r\nhunter2\r\n",
	} {
		_, err := exchange(t, h1.New(whole(raw)), "GET", roomy())
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}
