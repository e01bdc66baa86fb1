package h2

import "github.com/sallyport/sallyport/call"

// stream is one request and its answer. The connection's lock protects it until it is over; then it belongs to its attempt.
type stream struct {
	id      uint32 // 0 while it is queued
	req     *Request
	lim     Limits
	changed chan struct{} // tells the attempt to look; holds one, is never closed

	// The request: rest is what is left of its body, window what the peer takes of it now.
	rest   []byte
	window int64
	more   bool          // rest is not the end of the body: there is a feeder
	hungry chan struct{} // tells it that rest is used up; holds one, is never closed
	queued bool          // it stands in the queue
	sent   bool          // a byte of it may have reached the connection
	handed bool          // all of it was put into a batch
	whole  bool          // all of it was written

	// The answer: begun from its first frame on, head when the final one is there.
	begun, head bool
	interim     int
	status      int
	fields      []call.Header
	trailers    []call.Header
	body        []byte  // stays nil with a Sink
	backlog     backlog // of a Sink
	got         int64   // bytes of the body so far
	declared    int64   // length; -1 when not declared
	bodyless    bool
	// headLeft and fieldsLeft are what remains of the limits, over all its heads and its trailers.
	headLeft, fieldsLeft int
	recvWindow, recvOwed int64

	over   bool
	why    *Error // nil: it was answered
	frames uint64 // of the connection when it began
}

// beginLocked notes that something of the answer came.
func (s *stream) beginLocked() {
	if !s.begun && s.lim.Heard != nil {
		s.lim.Heard.Store(1)
	}
	s.begun = true
}

// finishLocked ends a stream.
func (c *Conn) finishLocked(s *stream, why *Error) {
	s.over, s.why, s.rest = true, why, nil
	if s.id != 0 {
		delete(c.streams, s.id)
		c.dropLargeLocked()
	}
}

// tell wakes attempts, holding no lock.
func tell(streams []*stream) {
	for _, s := range streams {
		select {
		case s.changed <- struct{}{}:
		default: // it will look anyway
		}
	}
}
