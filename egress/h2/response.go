package h2

import (
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/call"
)

// maxInterim bounds the interim answers before a final one, beside the bytes they take.
const maxInterim = 100

// Limits bound one answer while it is read. A zero limit allows nothing; a zero time is none, but for Deadline, which must be set.
type Limits struct {
	// HeaderBytes bounds all heads of the answer, interim ones and trailers included: names, values, and four bytes for each field, as
	// HTTP/1.1 would write them.
	HeaderBytes int
	// Headers bounds the fields in them.
	Headers int
	// BodyBytes bounds the body. A declared length above it is refused before the body is taken.
	BodyBytes int64

	// Deadline ends everything.
	Deadline time.Time
	// HeaderTimeout is how long the whole head may take once the request is written.
	HeaderTimeout time.Duration
	// IdleBody is how long the body may pause.
	IdleBody time.Duration

	// Sink, if any, takes the answer as it comes. BodyBytes bounds nothing then, and Response.Body stays nil.
	Sink *Sink

	// Heard is told what came back so far: 1 once there is a frame of an answer, the status once the final head is there. Nil: nobody asks.
	Heard *atomic.Int32
}

// Response is an answer, or what came of it.
type Response struct {
	// Status is that of the final answer, set once its head was there, so also when the body then failed; else 0.
	Status int
	// Fields are those of the final head, in order, Trailers those after the body without the ones that have no place there (RFC 9110
	// §6.5.1). Names are written as in HTTP/1.1.
	Fields, Trailers []call.Header
	// Body is the content, only if it is complete; nil when empty.
	Body []byte
	// Begun: at least one frame of an answer came, whatever became of it.
	Begun bool
	// Sent: a byte of the request may have reached the connection.
	Sent bool
}
