package call

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// Stream is what a streamed call has instead of bodies in memory.
type Stream struct {
	// Upload is the body of the request; nil: it has none.
	Upload *Upload
	// Answer takes the answer.
	Answer Answer
}

// AttemptStream is what an attempt of a streamed call has.
type AttemptStream struct {
	// Forwards decides of an answer, when its head is there, whether the caller gets it from then on, so that no other attempt can follow.
	Forwards func(head *Response) bool
	// Body is the body of the request, from its beginning; nil: it has none. The sender opens it.
	Body *UploadReader
}

// Answer takes the head of the answer that the caller gets, once, and then its body piece by piece. Both return when the caller has room for
// it, or when he is gone, which is an error.
type Answer interface {
	// Head is the answer without body and trailers.
	Head(r *Response) error
	// Piece is the next bytes of the body, good until it returns.
	Piece(p []byte) error
}

// Upload is the body of a streamed request. What attempts have read of it is kept as long as it is small enough to be sent again. One attempt
// reads it at a time.
type Upload struct {
	next func(ctx context.Context) ([]byte, error)

	mu    sync.Mutex // protects the fields below
	most  uint64
	read  uint64 // bytes that came from the caller
	kept  []byte // all of them, unless lost
	lost  bool
	ended bool
}

// NewUpload makes an upload from what gives the pieces of the body, each good until the next is asked for, and io.EOF at its end. Up to most
// bytes are kept to be sent again.
func NewUpload(next func(ctx context.Context) ([]byte, error), most uint64) *Upload {
	return &Upload{next: next, most: most}
}

// Replayable reports whether the body can be sent from its beginning, as far as is known now.
func (u *Upload) Replayable() bool {
	if u == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.lost
}

// Open begins the body from its beginning, for an attempt.
func (u *Upload) Open() *UploadReader { return &UploadReader{upload: u} }

// pull gets a piece from the caller, and keeps it if all of the body so far fits.
func (u *Upload) pull(ctx context.Context) ([]byte, error) {
	p, err := u.next(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = errors.Is(err, io.EOF)
	u.read += uint64(len(p))
	switch {
	case len(p) == 0 || u.lost:
	case u.read > u.most:
		u.kept, u.lost = nil, true
	default:
		u.kept = append(u.kept, p...)
	}
	return p, err
}

// UploadReader reads an upload for one attempt.
type UploadReader struct {
	upload *Upload
	at     uint64
	ahead  []byte // read by Empty

	waits   atomic.Bool   // for the caller
	fed     atomic.Uint64 // how often it did
	asked   uint64        // what that was when CallerWasSlow was asked
	starved bool
	whole   bool
}

// CallerWasSlow reports whether the caller's next piece is waited for, or was since this was last asked. One goroutine asks.
func (r *UploadReader) CallerWasSlow() bool {
	fed := r.fed.Load()
	slow := r.waits.Load() || fed != r.asked
	r.asked = fed
	return slow
}

// Starved reports that reading ended while the caller's next piece was waited for. It is asked when nobody reads any more.
func (r *UploadReader) Starved() bool { return r != nil && r.starved }

// Whole reports that the body was read to its end. It is asked when nobody reads any more.
func (r *UploadReader) Whole() bool { return r == nil || r.whole }

// errLost is a mistake of ours: only what is Replayable is begun again.
var errLost = errors.New("the body of the request is not kept from its beginning")

// Empty reports whether the body has no byte; it waits until that is known. It is asked before Next.
func (r *UploadReader) Empty(ctx context.Context) (bool, error) {
	for {
		p, err := r.Next(ctx)
		switch {
		case len(p) > 0:
			r.ahead = p
			return false, nil
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, err
		}
	}
}

// Next gives the next piece, good until it is called again, and io.EOF after the last one.
func (r *UploadReader) Next(ctx context.Context) ([]byte, error) {
	if p := r.ahead; p != nil {
		r.ahead = nil
		return p, nil
	}
	u := r.upload
	u.mu.Lock()
	read, kept, lost, ended := u.read, u.kept, u.lost, u.ended
	u.mu.Unlock()
	switch {
	case r.at < read && lost:
		return nil, errLost
	case r.at < read:
		p := kept[r.at:]
		r.at = read
		return p, nil
	case ended:
		r.whole = true
		return nil, io.EOF
	}
	r.waits.Store(true)
	p, err := u.pull(ctx)
	r.fed.Add(1)
	r.waits.Store(false)
	r.at += uint64(len(p))
	r.whole = errors.Is(err, io.EOF)
	r.starved = err != nil && !r.whole
	return p, err
}
