package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// DeferredService keeps calls until they are done.
type DeferredService struct {
	pb.UnimplementedDeferredServiceServer
	calls *CallService
	queue *deferred.Queue
}

// NewDeferredService keeps calls in the queue, and judges them as calls does. No queue: it refuses everything, since another broker may
// know the ids it would be asked about.
func NewDeferredService(calls *CallService, queue *deferred.Queue) *DeferredService {
	return &DeferredService{calls: calls, queue: queue}
}

// SubmitDeferredCall keeps a call.
func (s *DeferredService) SubmitDeferredCall(ctx context.Context, req *pb.SubmitDeferredCallRequest) (*pb.SubmitDeferredCallResponse, error) {
	if s.queue == nil {
		return nil, deferredNotShared()
	}
	r, err := s.read(ctx, req, time.Now())
	if err != nil {
		return nil, err
	}
	stands, _, err := s.queue.Submit(ctx, r)
	if err != nil {
		return nil, deferredError(err)
	}
	d, err := encodeDeferred(&stands, wholeCall)
	return &pb.SubmitDeferredCallResponse{DeferredCall: d}, err
}

// GetDeferredCall gives one with everything.
func (s *DeferredService) GetDeferredCall(ctx context.Context, req *pb.GetDeferredCallRequest) (*pb.GetDeferredCallResponse, error) {
	id, err := s.named(req.GetName())
	if err != nil {
		return nil, err
	}
	r, err := s.queue.Find(ctx, callerOf(ctx), id)
	if err != nil {
		return nil, deferredError(err)
	}
	d, err := encodeDeferred(&r, wholeCall)
	return &pb.GetDeferredCallResponse{DeferredCall: d}, err
}

// CancelDeferredCall ends one that is not finished.
func (s *DeferredService) CancelDeferredCall(ctx context.Context, req *pb.CancelDeferredCallRequest) (*pb.CancelDeferredCallResponse, error) {
	id, err := s.named(req.GetName())
	if err != nil {
		return nil, err
	}
	r, err := s.queue.Cancel(ctx, callerOf(ctx), id)
	if err != nil {
		return nil, deferredError(err)
	}
	d, err := encodeDeferred(&r, wholeCall)
	return &pb.CancelDeferredCallResponse{DeferredCall: d}, err
}

// deferredPrefix begins the names of deferred calls.
const deferredPrefix = "deferredCalls/"

// deferredID is the id in a name.
func deferredID(name string) (id, problem string) {
	id, ok := strings.CutPrefix(name, deferredPrefix)
	switch {
	case name == "":
		return "", "no name; give deferredCalls/{id}, as it was in the answer to the submission"
	case !ok || id == "" || len(id) > maxDeferredID || strings.Contains(id, "/"):
		return "", "not of the form deferredCalls/{id}"
	}
	return id, ""
}

// maxDeferredID is far above the length of the ids that are made.
const maxDeferredID = 128

// named is the id in the name of a request.
func (s *DeferredService) named(name string) (string, error) {
	if s.queue == nil {
		return "", deferredNotShared()
	}
	id, problem := deferredID(name)
	if problem != "" {
		d := decoder{}
		d.add("name", problem)
		return "", invalid(d.violations)
	}
	return id, nil
}

// prefixed are violations of a message as those of the field that holds it.
func prefixed(field string, violations []*call.InvalidError) []*call.InvalidError {
	all := make([]*call.InvalidError, len(violations))
	for i, v := range violations {
		all[i] = &call.InvalidError{Field: field + "." + v.Field, Problem: v.Problem}
	}
	return all
}

// storeRetryDelay is when a caller may ask again where the store failed.
const storeRetryDelay = time.Second

// deferredError is an error of the queue for the one who asked it.
func deferredError(err error) error {
	switch {
	case errors.Is(err, deferred.ErrNotFound):
		return refusal(codes.NotFound, reasonNotFound, "no deferred call of yours has that name: it never was, or was purged")
	case errors.Is(err, deferred.ErrConflict):
		return refusal(codes.AlreadyExists, reasonAlreadyExists,
			"the operation id stands for something else: a deferred call with another payload, or a direct call; nothing was kept. Use a new id for a new operation")
	case errors.Is(err, deferred.ErrFinished):
		return refusal(codes.FailedPrecondition, reasonWrongState, "the deferred call is finished and cannot be cancelled")
	case errors.Is(err, deferred.ErrSending):
		return refusal(codes.FailedPrecondition, reasonWrongState, "an attempt of the deferred call is under way; ask again when it has ended")
	case errors.Is(err, deferred.ErrState):
		return refusal(codes.FailedPrecondition, reasonWrongState,
			"the state of a deferred call that is named does not allow that: only FAILED and UNKNOWN ones are sent again, only finished ones are purged; nothing was changed")
	}
	if _, failed := errors.AsType[*deferred.StoreError](err); failed {
		return refusal(codes.Unavailable, reasonStoreUnavailable, "the store of deferred calls cannot be used now; submit again under the same operation id",
			&errdetails.RetryInfo{RetryDelay: durationpb.New(storeRetryDelay)})
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the time was up before the store of deferred calls had answered; whether it did it is not known")
	case errors.Is(err, errShut):
		return draining()
	}
	return status.Error(codes.Canceled, fmt.Sprintf("%v; whether it was done is not known", err))
}

func deferredNotShared() error {
	return refusal(codes.FailedPrecondition, reasonNotShared,
		"this broker is one of several (--replicas) without a shared store, and keeps no deferred calls: another one could not find them")
}
