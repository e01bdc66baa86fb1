package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// OriginService shows what the callers of an origin share, and lets operators force and reset its breakers.
type OriginService struct {
	pb.UnimplementedOriginServiceServer
	origins  *engine.Origins
	breakers *admin.Breakers
	news     originNews
}

// NewOriginService makes the service.
func NewOriginService(origins *engine.Origins, breakers *admin.Breakers) *OriginService {
	return &OriginService{origins: origins, breakers: breakers, news: originNews{turn: make(chan struct{}, 1)}}
}

// GetOrigin gives one origin.
func (s *OriginService) GetOrigin(_ context.Context, req *pb.GetOriginRequest) (*pb.GetOriginResponse, error) {
	name, problem := originName(req.GetOrigin())
	if err := invalid(problems(problem)); err != nil {
		return nil, err
	}
	origin, ok := s.one(name)
	if !ok {
		return nil, originNotFound(name)
	}
	return &pb.GetOriginResponse{Origin: origin}, nil
}

// SetBreaker says who judges.
func (s *OriginService) SetBreaker(ctx context.Context, req *pb.SetBreakerRequest) (*pb.SetBreakerResponse, error) {
	name, problem := originName(req.GetOrigin())
	if err := invalid(problems(problem, modeProblem(req), reasonProblem(req.GetReason()), expiryProblem(req, time.Now()))); err != nil {
		return nil, err
	}
	order := &admin.Order{Origin: name, Mode: breaker.Mode(req.GetMode()), Principal: callerOf(ctx), Reason: req.GetReason()}
	if req.GetExpireTime() != nil {
		order.ExpireTime = req.GetExpireTime().AsTime()
	}
	switch err := s.breakers.Set(ctx, order); {
	case errors.Is(err, admin.ErrManyForced):
		return nil, invalid(problems(&call.InvalidError{Field: "origin", Problem: "too many origins are forced; lift one first"}))
	case err != nil:
		return nil, adminError(ctx, name, err)
	}
	origin, ok := s.one(name)
	if !ok {
		origin = &pb.Origin{Origin: name} // nobody has called it, and nobody forces it
	}
	return &pb.SetBreakerResponse{Origin: origin}, nil
}

// ResetOrigin has the breakers of an origin begin anew.
func (s *OriginService) ResetOrigin(ctx context.Context, req *pb.ResetOriginRequest) (*pb.ResetOriginResponse, error) {
	name, problem := originName(req.GetOrigin())
	if err := invalid(problems(problem, reasonProblem(req.GetReason()))); err != nil {
		return nil, err
	}
	if _, ok := s.one(name); !ok { // before anything is written of it
		return nil, originNotFound(name)
	}
	if _, err := s.breakers.Reset(ctx, name, callerOf(ctx), req.GetReason()); err != nil {
		return nil, adminError(ctx, name, err)
	}
	origin, ok := s.one(name)
	if !ok {
		return nil, originNotFound(name) // forgotten meanwhile
	}
	return &pb.ResetOriginResponse{Origin: origin}, nil
}

// one is an origin that was called of late, or that is forced.
func (s *OriginService) one(name string) (*pb.Origin, bool) {
	forced := s.breakers.Forced(name)
	all := s.origins.Read(time.Now(), func(other string) bool { return other == name })
	switch {
	case len(all) > 0:
		return encodeOrigin(&all[0], forced), true
	case forced != nil:
		return encodeOrigin(&engine.OriginState{Name: name}, forced), true
	}
	return nil, false
}

func originNotFound(name string) error {
	return refusal(codes.NotFound, reasonNotFound, name+" is not known: nobody called it of late, and its breakers are not forced")
}

// originName reads an origin as a person writes it: the port may be left out, and case says nothing.
func originName(raw string) (string, *call.InvalidError) {
	problem := func(text string) (string, *call.InvalidError) {
		return "", &call.InvalidError{Field: "origin", Problem: text}
	}
	if raw == "" {
		return problem("is required: scheme://host:port")
	}
	target, err := call.ParseTarget(raw)
	if err != nil {
		return problem(violation(err, "origin").Problem)
	}
	if _, rest, _ := strings.Cut(raw, "://"); strings.ContainsAny(rest, "/?") {
		return problem("must be scheme://host:port, without a path")
	}
	return target.Origin, nil
}

func modeProblem(req *pb.SetBreakerRequest) *call.InvalidError {
	switch req.GetMode() {
	case pb.BreakerMode_BREAKER_MODE_AUTO:
		return nil
	case pb.BreakerMode_BREAKER_MODE_FORCED_OPEN, pb.BreakerMode_BREAKER_MODE_FORCED_CLOSED:
		if strings.TrimSpace(req.GetReason()) == "" {
			return &call.InvalidError{Field: "reason", Problem: "is required where a breaker is forced: others will ask why"}
		}
		return nil
	}
	return &call.InvalidError{Field: "mode", Problem: "must be BREAKER_MODE_AUTO, BREAKER_MODE_FORCED_OPEN or BREAKER_MODE_FORCED_CLOSED"}
}

func reasonProblem(reason string) *call.InvalidError {
	switch {
	case len(reason) > maxReason:
		return &call.InvalidError{Field: "reason", Problem: fmt.Sprintf("must be at most %d bytes, and has %d", maxReason, len(reason))}
	case strings.ContainsFunc(reason, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return &call.InvalidError{Field: "reason", Problem: "must not contain control characters"}
	}
	return nil
}

func expiryProblem(req *pb.SetBreakerRequest, now time.Time) *call.InvalidError {
	var problem string
	switch end := req.GetExpireTime(); {
	case end == nil:
		return nil
	case req.GetMode() == pb.BreakerMode_BREAKER_MODE_AUTO:
		problem = "must not be set with BREAKER_MODE_AUTO, which does not end"
	case !end.IsValid():
		problem = "is no time"
	case !end.AsTime().After(now):
		problem = "must be in the future; it is " + now.UTC().Format(time.RFC3339)
	default:
		return nil
	}
	return &call.InvalidError{Field: "expire_time", Problem: problem}
}

// problems leaves out those that are none.
func problems(all ...*call.InvalidError) (some []*call.InvalidError) {
	for _, p := range all {
		if p != nil {
			some = append(some, p)
		}
	}
	return some
}

// stamp is nil for the zero time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
