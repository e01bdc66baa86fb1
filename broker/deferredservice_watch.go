package broker

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/deferred"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// resumption is a resume_token, read as the token of a page is.
type resumption string

func (resumption) GetPageSize() int32     { return 0 }
func (r resumption) GetPageToken() string { return string(r) }

// position is where a watch goes on; 0: from now on.
func (r resumption) position() (uint64, error) {
	p, err := pageOf(r)
	if err == nil {
		var n uint64
		if n, err = p.number(); err == nil {
			return n, nil
		}
	}
	return 0, notResumable()
}

func notResumable() error {
	d := decoder{}
	d.add("resume_token", "is none that a change came with; leave it out to begin now")
	return invalid(d.violations)
}

// WatchDeferredCalls tells of every change of the caller's deferred calls.
func (s *DeferredService) WatchDeferredCalls(req *pb.WatchDeferredCallsRequest, stream grpc.ServerStreamingServer[pb.WatchDeferredCallsResponse]) error {
	if s.queue == nil {
		return deferredNotShared()
	}
	ctx := stream.Context()
	f, err := deferredFilter(ctx, "filter.", req.GetFilter())
	if err != nil {
		return err
	}
	after, err := resumption(req.GetResumeToken()).position()
	if err != nil {
		return err
	}
	for change, err := range s.queue.Watch(ctx, f, after) {
		if err != nil {
			return watchError(ctx, err)
		}
		d, err := s.listed(ctx, &change.Record)
		switch {
		case errors.Is(err, deferred.ErrNotFound): // purged since
			continue
		case err != nil:
			return err
		}
		if err := stream.Send(&pb.WatchDeferredCallsResponse{DeferredCall: d, ResumeToken: pageToken(strconv.FormatUint(change.Position, 10))}); err != nil {
			return err //nolint:wrapcheck // it is the status of the RPC
		}
	}
	return nil
}

func watchError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, deferred.ErrAhead):
		return notResumable()
	case errors.Is(err, deferred.ErrClosed), sentHome(ctx):
		return draining()
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return deferredError(err)
}
