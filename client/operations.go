package client

import (
	"context"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// GetOperation tells what the ledger of the broker knows of an operation id, also after its caller gave up. An id that was never seen
// there, or is long forgotten, is NOT_FOUND, and [Refusal] names the ledger. Errors are as those of Call.
func (c *Client) GetOperation(ctx context.Context, req *pb.GetOperationRequest) (*pb.GetOperationResponse, error) {
	return c.calls.GetOperation(ctx, req)
}

// ListOperations gives a page of the caller's operations, the newest first. Errors are as those of Call.
func (c *Client) ListOperations(ctx context.Context, req *pb.ListOperationsRequest) (*pb.ListOperationsResponse, error) {
	return c.calls.ListOperations(ctx, req)
}

// ReconcileOperation runs the status probe of an operation now and tells what is known after it. Errors are as those of Call.
func (c *Client) ReconcileOperation(ctx context.Context, req *pb.ReconcileOperationRequest) (*pb.ReconcileOperationResponse, error) {
	return c.calls.ReconcileOperation(ctx, req)
}
