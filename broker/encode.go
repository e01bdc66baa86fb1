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
func encode(f *call.Final, report pb.Report) *pb.CallResponse {
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
	if report == pb.Report_REPORT_BRIEF && f.Outcome == call.OutcomeSuccess && len(f.Attempts) > 0 && f.Attempts[0].Decision.Reason == call.ReasonSuccess {
		return resp
	}
	resp.Attempts = encodeAttempts(f.Attempts)
	return resp
}

func encodeAttempts(all []call.Attempt) []*pb.Attempt {
	attempts := make([]*pb.Attempt, len(all))
	messages := make([]attemptMessages, len(all))
	for i := range all {
		attempts[i] = messages[i].encode(&all[i])
	}
	return attempts
}

// attemptMessages are the messages that every attempt has, in one piece of memory.
type attemptMessages struct {
	attempt                   pb.Attempt
	decision                  pb.Decision
	offset, timeout, duration durationpb.Duration
	start                     timestamppb.Timestamp
}

func (m *attemptMessages) encode(a *call.Attempt) *pb.Attempt {
	setDuration(&m.offset, a.Offset)
	setDuration(&m.timeout, a.Timeout)
	setDuration(&m.duration, a.Duration)
	m.start.Seconds, m.start.Nanos = a.Start.Unix(), int32(a.Start.Nanosecond()) //nolint:gosec // below a billion
	d := &m.decision
	d.Verdict, d.Reason, d.Wait = pb.Verdict(a.Decision.Verdict), pb.Reason(a.Decision.Reason), unlessZero(a.Decision.Wait)
	p := &m.attempt
	p.Number, p.Kind = a.Number, pb.AttemptKind(a.Kind)
	p.Offset, p.Timeout, p.Duration = &m.offset, &m.timeout, &m.duration
	p.Waited, p.Queued = unlessZero(a.Waited), unlessZero(a.Queued)
	p.Status = uint32(a.Result.Status) //nolint:gosec // 0 or 100 to 599
	p.Evidence, p.Failure, p.Detail = pb.Evidence(a.Result.Evidence), pb.Failure(a.Result.Failure), a.Result.Detail
	p.Origin, p.RemoteAddress = a.Origin, a.Result.RemoteAddress
	p.Protocol, p.ReusedConnection = a.Result.Protocol, a.Result.Reused
	p.Decision, p.StartTime = d, &m.start
	p.SpanId, p.TraceId = a.SpanID, a.TraceID
	return p
}

// setDuration is durationpb.New in place.
func setDuration(d *durationpb.Duration, v time.Duration) {
	d.Seconds, d.Nanos = int64(v/time.Second), int32(v%time.Second)
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
		Protocol: r.Protocol, BodyOmitted: r.BodyOmitted,
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
