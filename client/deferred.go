package client

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// SubmitDeferredCall has a call kept until it is done; the answer comes after it is on the broker's disk. Give an operation id: when no
// answer comes, the same submission under the same id is no second one. Errors are as those of Call.
func (c *Client) SubmitDeferredCall(ctx context.Context, req *pb.SubmitDeferredCallRequest) (*pb.SubmitDeferredCallResponse, error) {
	return c.deferred.SubmitDeferredCall(ctx, req)
}

// GetDeferredCall gives a deferred call with every attempt. One that never was, was purged, or is another caller's is NOT_FOUND. Errors
// are as those of Call.
func (c *Client) GetDeferredCall(ctx context.Context, req *pb.GetDeferredCallRequest) (*pb.GetDeferredCallResponse, error) {
	return c.deferred.GetDeferredCall(ctx, req)
}

// ListDeferredCalls gives a page of the caller's deferred calls, the newest first, without bodies, and counts all of his by state. Errors
// are as those of Call.
func (c *Client) ListDeferredCalls(ctx context.Context, req *pb.ListDeferredCallsRequest) (*pb.ListDeferredCallsResponse, error) {
	return c.deferred.ListDeferredCalls(ctx, req)
}

// CancelDeferredCall ends one that is not finished; a finished one is FAILED_PRECONDITION. Errors are as those of Call.
func (c *Client) CancelDeferredCall(ctx context.Context, req *pb.CancelDeferredCallRequest) (*pb.CancelDeferredCallResponse, error) {
	return c.deferred.CancelDeferredCall(ctx, req)
}

// RedriveDeferredCalls sends failed and unknown ones again, under the same key. Errors are as those of Call.
func (c *Client) RedriveDeferredCalls(ctx context.Context, req *pb.RedriveDeferredCallsRequest) (*pb.RedriveDeferredCallsResponse, error) {
	return c.deferred.RedriveDeferredCalls(ctx, req)
}

// PurgeDeferredCalls deletes finished ones for good. Errors are as those of Call.
func (c *Client) PurgeDeferredCalls(ctx context.Context, req *pb.PurgeDeferredCallsRequest) (*pb.PurgeDeferredCallsResponse, error) {
	return c.deferred.PurgeDeferredCalls(ctx, req)
}

// WatchDeferredCalls tells of every change, until ctx is done or the connection is lost; then the resume_token of the last change goes on
// where it ended. Errors are as those of Call.
func (c *Client) WatchDeferredCalls(ctx context.Context, req *pb.WatchDeferredCallsRequest) (grpc.ServerStreamingClient[pb.WatchDeferredCallsResponse], error) {
	return c.deferred.WatchDeferredCalls(ctx, req)
}
