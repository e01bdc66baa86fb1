package operation

import (
	"encoding/json"
	"fmt"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/call/archive"
)

// details are what a record keeps of a final that no ledger reads. The stored form outlives programs: names here are added, never changed.
type details struct {
	Policy    string            `json:"policy,omitempty"`
	Detail    string            `json:"detail,omitempty"`
	Next      call.NextStep     `json:"next,omitempty"`
	RetrySafe bool              `json:"retry_safe,omitempty"`
	Attempts  []archive.Attempt `json:"attempts,omitempty"`
	Head      *archive.Head     `json:"head,omitempty"`
	// Probes tell what status probes found, the oldest first.
	Probes []Finding `json:"probes,omitempty"`
}

// mostBody is the size in bytes of the largest body that is kept; of a larger one status and head are.
const mostBody = 1 << 20

// detailsOf is what a final leaves behind.
func detailsOf(f *call.Final, policy string, probes []Finding) details {
	d := details{Policy: policy, Detail: f.Detail, Next: f.Next, RetrySafe: f.RetrySafe, Attempts: archive.AttemptsOf(f.Attempts), Probes: probes}
	if f.Response != nil {
		d.Head = archive.HeadOf(f.Response)
	}
	return d
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
	return Known{archive.Attempts(d.Attempts), r.response(&d), d.Detail, d.Next, d.RetrySafe, d.Policy, d.Probes}, nil
}

// response is the answer that a record keeps; nil without one.
func (r *Record) response(d *details) *call.Response {
	if r.Status == 0 {
		return nil
	}
	answer := &call.Response{Status: r.Status, Body: r.Body, BodyOmitted: int64(len(r.Body)) < r.BodyBytes}
	if d.Head != nil {
		d.Head.Put(answer)
	}
	return answer
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
