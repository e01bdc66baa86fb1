package broker

import (
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// encode writes what became of a call. The enums of package call have the numbers of the wire.
func encode(f *call.Final, c *call.Call, report pb.Report) *pb.CallResponse {
	resp := &pb.CallResponse{
		Outcome:     pb.Outcome(f.Outcome),
		Effect:      pb.Effect(f.Effect),
		Response:    encodeResponse(f.Response),
		Reason:      pb.Reason(f.Reason),
		Detail:      f.Detail,
		Elapsed:     durationpb.New(f.Elapsed),
		Sends:       f.Sends,
		RetrySafe:   f.RetrySafe,
		Next:        pb.NextStep(f.Next),
		RetryAfter:  unlessZero(f.RetryAfter),
		OperationId: f.OperationID,
	}
	if report == pb.Report_REPORT_BRIEF && f.Outcome == call.OutcomeSuccess && len(f.Attempts) == 1 {
		return resp
	}
	resp.Attempts = make([]*pb.Attempt, len(f.Attempts))
	for i := range f.Attempts {
		resp.Attempts[i] = encodeAttempt(&f.Attempts[i], c.Target.Origin)
	}
	return resp
}

func encodeAttempt(a *call.Attempt, origin string) *pb.Attempt {
	return &pb.Attempt{
		Number:           a.Number,
		Kind:             pb.AttemptKind(a.Kind),
		Offset:           durationpb.New(a.Offset),
		Waited:           unlessZero(a.Waited),
		Queued:           unlessZero(a.Queued),
		Timeout:          durationpb.New(a.Timeout),
		Duration:         durationpb.New(a.Duration),
		Status:           uint32(a.Result.Status), //nolint:gosec // 0 or 100 to 599
		Evidence:         pb.Evidence(a.Result.Evidence),
		Failure:          pb.Failure(a.Result.Failure),
		Detail:           a.Result.Detail,
		Origin:           origin,
		RemoteAddress:    a.Result.RemoteAddress,
		Protocol:         a.Result.Protocol,
		ReusedConnection: a.Result.Reused,
		Decision: &pb.Decision{
			Verdict: pb.Verdict(a.Decision.Verdict),
			Reason:  pb.Reason(a.Decision.Reason),
			Wait:    unlessZero(a.Decision.Wait),
		},
		SpanId:    a.SpanID,
		StartTime: timestamppb.New(a.Start),
		TraceId:   a.TraceID,
	}
}

func encodeResponse(r *call.Response) *pb.HttpResponse {
	if r == nil {
		return nil
	}
	return &pb.HttpResponse{
		Status:   uint32(r.Status), //nolint:gosec // 100 to 599
		Headers:  encodeHeaders(r.Headers),
		Body:     r.Body,
		Trailers: encodeHeaders(r.Trailers),
		Protocol: r.Protocol,
	}
}

// encodeHeaders keeps the bytes of a value that is not UTF-8, so that no answer can make a reply unencodable.
func encodeHeaders(headers []call.Header) []*pb.HttpHeader {
	if len(headers) == 0 {
		return nil
	}
	fields := make([]pb.HttpHeader, len(headers)) // one allocation for all of them
	list := make([]*pb.HttpHeader, len(headers))
	for i := range headers {
		f := &fields[i]
		f.Name = headers[i].Name
		if v := headers[i].Value; utf8.ValidString(v) {
			f.Value = v
		} else {
			f.RawValue = []byte(v)
		}
		list[i] = f
	}
	return list
}

func unlessZero(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
