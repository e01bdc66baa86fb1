package broker

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
)

// chunkHead is what a chunk takes beside its bytes, at most.
const chunkHead = 16

// receptionOfChunks lets those of streams in flight come also while the broker drains.
func receptionOfChunks(l Limits) *reception {
	r := receptionOfCalls(l)
	r.most = maxChunk + chunkHead
	return r
}

// streamed is a stream of many messages from its caller: the first is received as that of a call is, each other one when it comes.
type streamed struct {
	grpc.ServerStream
	calls, chunks *reception
	whose         string
	begun         bool
}

// RecvMsg reads a message.
func (s *streamed) RecvMsg(m any) error {
	if !s.begun {
		s.begun = true
		return s.calls.receive(s.Context(), s.whose, m, false)
	}
	return s.chunks.receiveNext(s.Context(), s.whose, m)
}

// receiveNext reads one more message of a stream. Until it begins its caller may take his time.
func (r *reception) receiveNext(ctx context.Context, whose string, into any) (err error) {
	w, hangUp, ok := wireOf(ctx)
	if !ok {
		return untapped()
	}
	var head messageHead
	if err := readHead(w, &head); err != nil {
		return err
	}
	if int64(head.size()) > int64(r.most) {
		return tooMuch(head.size())
	}
	a := r.arrival(whose, hangUp)
	a.head = head
	if !r.begin(a) {
		return draining()
	}
	r.expect(a, receiveTime)
	defer func() { err = cmp.Or(r.end(a), err) }()
	return r.readRest(ctx, w, a, into)
}
