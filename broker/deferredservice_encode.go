package broker

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/deferred"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// detailOf says how much of a deferred call is told.
type detailOf bool

const (
	wholeCall   detailOf = true
	withoutBody detailOf = false
)

// encodeDeferred writes what is kept. The enums of package deferred have the numbers of the wire.
func encodeDeferred(r *deferred.Record, how detailOf) (*pb.DeferredCall, error) {
	asked := &pb.CallRequest{}
	if err := proto.Unmarshal(r.Request, asked); err != nil {
		return nil, status.Error(codes.Internal, fmt.Sprintf("what is kept of the deferred call %s cannot be read", r.ID))
	}
	d := &pb.DeferredCall{
		Name: deferredPrefix + r.ID, State: pb.DeferredState(r.State), Failure: pb.DeferredFailure(r.Failure),
		Attempts: encodeAttempts(r.Attempts), PossibleDuplicate: r.PossibleDuplicate,
		Call: asked, Response: encodeResponse(r.Response),
		Effect: pb.Effect(r.Effect), Reason: pb.Reason(r.Reason), Detail: r.Detail,
		OperationId: r.OperationID, Delivery: pb.DeliveryMode(r.Delivery), Caller: r.Caller,
		CreateTime: stamp(r.Created), UpdateTime: stamp(r.Updated), FinishTime: stamp(r.Ended), ExpireTime: stamp(r.Expire),
		MaxRetries: r.MaxRetries, Backoff: unlessZero(r.Backoff),
	}
	if !r.State.Finished() && r.State != deferred.StateSending {
		d.NextAttemptTime = stamp(r.NextAttempt)
	}
	if how == withoutBody {
		if in := asked.GetRequest(); in != nil {
			in.Body = nil
		}
		if a := d.GetResponse(); a != nil {
			a.BodyOmitted, a.Body = a.GetBodyOmitted() || len(a.GetBody()) > 0, nil
		}
	}
	return d, nil
}
