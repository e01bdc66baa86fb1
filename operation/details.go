package operation

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sallyport/sallyport/call"
)

// details are what a record keeps of a final that no ledger reads. The stored form outlives programs: names here are added, never changed.
type details struct {
	Policy    string        `json:"policy,omitempty"`
	Detail    string        `json:"detail,omitempty"`
	Next      call.NextStep `json:"next,omitempty"`
	RetrySafe bool          `json:"retry_safe,omitempty"`
	Attempts  []attempt     `json:"attempts,omitempty"`
	Head      *head         `json:"head,omitempty"`
	// Probes tell what status probes found, the oldest first.
	Probes []Finding `json:"probes,omitempty"`
}

// head is an answer but for its body.
type head struct {
	Headers  []field `json:"headers,omitempty"`
	Trailers []field `json:"trailers,omitempty"`
	Protocol string  `json:"protocol,omitempty"`
}

// field is a header. Bytes, since a value need not be UTF-8 and JSON can carry nothing else.
type field struct {
	Name  string `json:"n"`
	Value []byte `json:"v"`
}

// attempt is a [call.Attempt] whose answer stands elsewhere.
type attempt struct {
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

// mostBody is the size in bytes of the largest body that is kept; of a larger one status and head are.
const mostBody = 1 << 20

// detailsOf is what a final leaves behind.
func detailsOf(f *call.Final, policy string, probes []Finding) details {
	d := details{Policy: policy, Detail: f.Detail, Next: f.Next, RetrySafe: f.RetrySafe, Probes: probes}
	for i := range f.Attempts {
		a := &f.Attempts[i]
		r := &a.Result
		d.Attempts = append(d.Attempts, attempt{
			Number: a.Number, Kind: a.Kind, Origin: a.Origin, Start: a.Start.UTC(), Offset: a.Offset, Waited: a.Waited, Queued: a.Queued,
			Timeout: a.Timeout, Duration: a.Duration, TraceID: a.TraceID, SpanID: a.SpanID,
			Evidence: r.Evidence, Failure: r.Failure, TimedOut: r.TimedOut, Detail: r.Detail, Status: r.Status,
			Remote: r.RemoteAddress, Protocol: r.Protocol, Reused: r.Reused,
			Verdict: a.Decision.Verdict, Reason: a.Decision.Reason, RetryWait: a.Decision.Wait,
		})
	}
	if r := f.Response; r != nil {
		d.Head = &head{Headers: fieldsOf(r.Headers), Trailers: fieldsOf(r.Trailers), Protocol: r.Protocol}
	}
	return d
}

// fieldsOf leaves cookies out: they are credentials, for the one who got them (RFC 6265 §4.1).
func fieldsOf(headers []call.Header) []field {
	var fields []field
	for _, h := range headers {
		if !call.SameField(h.Name, "Set-Cookie") {
			fields = append(fields, field{h.Name, []byte(h.Value)})
		}
	}
	return fields
}

func (d *details) encode() ([]byte, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("details of an operation: %w", err)
	}
	return b, nil
}

// details reads them. Of one whose broker ended in the middle there are none, of one that ended long ago no more: what it tells then
// follows from the plain fields.
func (r *Record) details() (details, error) {
	var d details
	if len(r.Details) > 0 {
		if err := json.Unmarshal(r.Details, &d); err != nil {
			return d, fmt.Errorf("details of an operation: %w", err)
		}
	}
	if d.Next != 0 || r.State == StateRunning {
		return d, nil
	}
	d.RetrySafe = !r.MustNotRepeat || r.Effect == call.EffectNone
	switch { // contract.md §1, next
	case r.Told.Outcome == call.OutcomeSuccess:
		d.Next = call.NextStepDone
	case r.Free():
		d.Next = call.NextStepRetry
	case r.Effect == call.EffectUnknown:
		d.Next, d.Detail = call.NextStepReconcile, "the broker ended in the middle of this call; whether it had an effect is not known"
	default:
		d.Next = call.NextStepFixRequest
	}
	return d, nil
}

// attempts are those of the details as they were.
func (d *details) attempts() []call.Attempt {
	var all []call.Attempt
	for i := range d.Attempts {
		a := &d.Attempts[i]
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

// Known is what a record tells of its call.
type Known struct {
	Attempts  []call.Attempt
	Response  *call.Response
	Detail    string
	Next      call.NextStep
	RetrySafe bool
	Policy    string
	Probes    []Finding
}

// Known reads it.
func (r *Record) Known() (Known, error) {
	d, err := r.details()
	if err != nil {
		return Known{}, err
	}
	return Known{d.attempts(), r.response(&d), d.Detail, d.Next, d.RetrySafe, d.Policy, d.Probes}, nil
}

// response is the answer that a record keeps; nil without one.
func (r *Record) response(d *details) *call.Response {
	if r.Status == 0 {
		return nil
	}
	answer := &call.Response{Status: r.Status, Body: r.Body, BodyOmitted: int64(len(r.Body)) < r.BodyBytes}
	if d.Head != nil {
		answer.Headers, answer.Trailers, answer.Protocol = headersOf(d.Head.Headers), headersOf(d.Head.Trailers), d.Head.Protocol
	}
	return answer
}

func headersOf(fields []field) []call.Header {
	var headers []call.Header
	for _, f := range fields {
		headers = append(headers, call.Header{Name: f.Name, Value: string(f.Value)})
	}
	return headers
}

// Request is what a status probe needs of the call that led.
type Request struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// Probe is the URL of the status probe, filled in; "" when the policy had none.
	Probe string `json:"probe,omitempty"`
}

func (r *Request) encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("request of an operation: %w", err)
	}
	return b, nil
}

// RequestOf reads what the record keeps of its call.
func RequestOf(r *Record) (Request, error) {
	var q Request
	if err := json.Unmarshal(r.Request, &q); err != nil {
		return q, fmt.Errorf("request of an operation: %w", err)
	}
	return q, nil
}
