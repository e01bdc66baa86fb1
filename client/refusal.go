package client

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// domain marks what the broker itself says, in contrast to a proxy on the way to it.
const domain = "sallyport"

// Refusal is what an error of [Client.Call] says.
type Refusal struct {
	// Code is the gRPC code.
	Code codes.Code
	// Message is for a person.
	Message string
	// Reason is the broker's word for it, of the closed list in the contract; "" when the error is not the broker's.
	Reason string
	// NothingSent: no byte of the call can have left the broker. False means unknown.
	NothingSent bool
	// Violations are the fields of the request that cannot be taken.
	Violations []Violation
	// RetryAfter is the earliest useful moment to try again, from now; 0 when not known.
	RetryAfter time.Duration
	// Ledger, of an operation that is not found, names the ledger that was asked; another broker may ask another one. "" elsewhere.
	Ledger string
	// KnownSince, beside it, is the instant since which that ledger knows. Zero when not told.
	KnownSince time.Time
}

// Violation is one field of a request that cannot be taken.
type Violation struct {
	// Field is its path, for example "request.url".
	Field string
	// Problem says what is wrong with it and what would be right.
	Problem string
}

// Explain reads an error of [Client.Call]. One that is no gRPC status has the code Unknown.
func Explain(err error) Refusal {
	st, _ := status.FromError(err)
	r := Refusal{Code: st.Code(), Message: st.Message()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == domain {
				r.Reason = d.GetReason()
				r.NothingSent = d.GetMetadata()["sent"] == "false"
				r.Ledger = d.GetMetadata()["ledger"]
				// One that cannot be read is not told: the zero time.
				r.KnownSince, _ = time.Parse(time.RFC3339Nano, d.GetMetadata()["known_since"])
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				r.Violations = append(r.Violations, Violation{Field: v.GetField(), Problem: v.GetDescription()})
			}
		case *errdetails.RetryInfo:
			r.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return r
}

// NothingSent reports whether err proves that no byte of the call can have left the broker. False means unknown: the call may
// have been made.
func NothingSent(err error) bool { return err != nil && Explain(err).NothingSent }
