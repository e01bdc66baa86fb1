// Package archive writes attempts and answers as they are kept on disk. The stored form outlives programs: names are added to it, never
// changed.
package archive

import (
	"time"

	"github.com/sallyport/sallyport/call"
)

// Head is an answer but for its body.
type Head struct {
	Headers  []Field `json:"headers,omitempty"`
	Trailers []Field `json:"trailers,omitempty"`
	Protocol string  `json:"protocol,omitempty"`
}

// Field is a header. Its value is bytes, since it need not be UTF-8 and JSON can carry nothing else.
type Field struct {
	Name  string `json:"n"`
	Value []byte `json:"v"`
}

// HeadOf keeps an answer's head but for cookies: they are credentials, for the one who got them (RFC 6265 §4.1).
func HeadOf(r *call.Response) *Head {
	return &Head{Headers: fieldsOf(r.Headers), Trailers: fieldsOf(r.Trailers), Protocol: r.Protocol}
}

func fieldsOf(headers []call.Header) []Field {
	var fields []Field
	for _, h := range headers {
		if !call.SameField(h.Name, "Set-Cookie") {
			fields = append(fields, Field{h.Name, []byte(h.Value)})
		}
	}
	return fields
}

// Put gives an answer the head that was kept of it.
func (h *Head) Put(r *call.Response) {
	r.Headers, r.Trailers, r.Protocol = headersOf(h.Headers), headersOf(h.Trailers), h.Protocol
}

func headersOf(fields []Field) []call.Header {
	var headers []call.Header
	for _, f := range fields {
		headers = append(headers, call.Header{Name: f.Name, Value: string(f.Value)})
	}
	return headers
}

// Attempt is a [call.Attempt] whose answer stands elsewhere.
type Attempt struct {
	Number    uint32        `json:"number"`
	Kind      call.Kind     `json:"kind"`
	Origin    string        `json:"origin"`
	Start     time.Time     `json:"start"`
	Offset    time.Duration `json:"offset"`
	Waited    time.Duration `json:"waited,omitempty"`
	Queued    time.Duration `json:"queued,omitempty"`
	Timeout   time.Duration `json:"timeout"`
	Duration  time.Duration `json:"duration"`
	TraceID   string        `json:"trace_id,omitempty"`
	SpanID    string        `json:"span_id,omitempty"`
	Evidence  call.Evidence `json:"evidence"`
	Failure   call.Failure  `json:"failure,omitempty"`
	TimedOut  bool          `json:"timed_out,omitempty"`
	Detail    string        `json:"detail,omitempty"`
	Status    int           `json:"status,omitempty"`
	Remote    string        `json:"remote,omitempty"`
	Protocol  string        `json:"protocol,omitempty"`
	Reused    bool          `json:"reused,omitempty"`
	Verdict   call.Verdict  `json:"verdict,omitempty"`
	Reason    call.Reason   `json:"reason,omitempty"`
	RetryWait time.Duration `json:"wait,omitempty"`
}

// AttemptsOf keeps attempts.
func AttemptsOf(attempts []call.Attempt) []Attempt {
	var all []Attempt
	for i := range attempts {
		a := &attempts[i]
		r := &a.Result
		all = append(all, Attempt{
			Number: a.Number, Kind: a.Kind, Origin: a.Origin, Start: a.Start.UTC(), Offset: a.Offset, Waited: a.Waited, Queued: a.Queued,
			Timeout: a.Timeout, Duration: a.Duration, TraceID: a.TraceID, SpanID: a.SpanID,
			Evidence: r.Evidence, Failure: r.Failure, TimedOut: r.TimedOut, Detail: r.Detail, Status: r.Status,
			Remote: r.RemoteAddress, Protocol: r.Protocol, Reused: r.Reused,
			Verdict: a.Decision.Verdict, Reason: a.Decision.Reason, RetryWait: a.Decision.Wait,
		})
	}
	return all
}

// Attempts are those that were kept, as they were.
func Attempts(kept []Attempt) []call.Attempt {
	var all []call.Attempt
	for i := range kept {
		a := &kept[i]
		all = append(all, call.Attempt{
			Number: a.Number, Kind: a.Kind, Origin: a.Origin, Start: a.Start, Offset: a.Offset, Waited: a.Waited, Queued: a.Queued,
			Timeout: a.Timeout, Duration: a.Duration, TraceID: a.TraceID, SpanID: a.SpanID,
			Result: call.Result{
				Evidence: a.Evidence, Failure: a.Failure, TimedOut: a.TimedOut, Detail: a.Detail, Status: a.Status,
				RemoteAddress: a.Remote, Protocol: a.Protocol, Reused: a.Reused,
			},
			Decision: call.Decision{Verdict: a.Verdict, Reason: a.Reason, Wait: a.RetryWait},
		})
	}
	return all
}
