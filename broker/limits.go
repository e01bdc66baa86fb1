package broker

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// The limits of a broker that is told none.
const (
	DefaultMaxCalls = 10_000
	DefaultMaxBytes = 1 << 30
)

// MinMaxBytes is the least MaxBytes that is of use: a call without a body may count as much, for its answer.
const MinMaxBytes = answerShare

// fullRetryDelay is the RetryInfo of a full broker. Calls end all the time, so that waiting longer would be guessing; a client that
// asks at once, in a loop, would keep the broker busy with refusals.
const fullRetryDelay = time.Second

// Limits bound what all calls of a broker together may take. Over one of them a call is refused before anything is sent.
type Limits struct {
	// MaxCalls is the number of calls in flight; 0: [DefaultMaxCalls].
	MaxCalls uint64
	// MaxBytes is what their bodies may hold, in bytes; 0: [DefaultMaxBytes]. Each call counts its request body and up to 64 KiB
	// for its answer.
	MaxBytes uint64
}

// capacity is what is taken of the limits.
type capacity struct {
	limits Limits

	mu    sync.Mutex // protects the fields below
	calls uint64
	bytes uint64
}

func newCapacity(l Limits) *capacity {
	if l.MaxCalls == 0 {
		l.MaxCalls = DefaultMaxCalls
	}
	if l.MaxBytes == 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	return &capacity{limits: l}
}

// room is a call's part of the capacity. It is given back once.
type room struct {
	of    *capacity
	bytes uint64
}

// take gives a call its room, or the error that refuses it. Check and take are one step, so that no number of calls at once gets
// past a limit.
func (c *capacity) take(bytes uint64) (room, error) {
	full := c.takeIfRoom(bytes)
	if bytes > c.limits.MaxBytes { // it will never fit: no RetryInfo, or its caller would ask for ever
		return room{}, refusal(codes.ResourceExhausted, reasonBrokerFull, full)
	}
	if full != "" {
		return room{}, refusal(codes.ResourceExhausted, reasonBrokerFull, full, &errdetails.RetryInfo{RetryDelay: durationpb.New(fullRetryDelay)})
	}
	return room{of: c, bytes: bytes}, nil
}

// takeIfRoom says what is full; "" when the room was taken.
func (c *capacity) takeIfRoom(bytes uint64) (full string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case bytes > c.limits.MaxBytes:
		return fmt.Sprintf("this call counts %d bytes, more than the %d of all calls together (--max-bytes); send a smaller body", bytes, c.limits.MaxBytes)
	case c.calls >= c.limits.MaxCalls:
		return fmt.Sprintf("the broker is full: %d calls in flight (--max-calls); ask again later, or another broker", c.calls)
	case bytes > c.limits.MaxBytes-c.bytes:
		return fmt.Sprintf("the broker is full: its calls hold %d of %d bytes (--max-bytes), and this one %d more; ask again later, or another broker",
			c.bytes, c.limits.MaxBytes, bytes)
	}
	c.calls++
	c.bytes += bytes
	return ""
}

func (r room) giveBack() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.calls--
	r.of.bytes -= r.bytes
}

// answerShare is what a call counts for its answer at most. Most answers are smaller; counting the largest one that a policy allows
// would fill the default limit with some three hundred calls that hold next to nothing.
const answerShare = 64 << 10

// held is what a call counts: its request body, and its answer as far as that may be, but no more than answerShare. Not counted is
// what is beyond that, and what is small as a rule: headers, buffers, the reply once gRPC has it.
func held(c *call.Call, p *policy.Effective) uint64 {
	bytes := uint64(len(c.Body))
	if c.Method == "HEAD" { // its answer has no body (RFC 9110 §9.3.2)
		return bytes
	}
	answer := min(p.Body.MaxResponseBytes, answerShare)
	if c.MaxResponseBytes != 0 {
		answer = min(answer, c.MaxResponseBytes)
	}
	return bytes + answer
}
