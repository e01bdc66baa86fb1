package broker

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/sallyport/sallyport/call"
)

// domain is the ErrorInfo domain of everything the broker itself says.
const domain = "sallyport"

// The reasons of the broker's own errors: those of the closed list in contract.md §1 that this version can give.
const (
	reasonInvalidRequest   = "INVALID_REQUEST"
	reasonUnauthenticated  = "UNAUTHENTICATED"
	reasonRoleRequired     = "ROLE_REQUIRED"
	reasonBrokerFull       = "BROKER_FULL"
	reasonDraining         = "DRAINING"
	reasonLedger           = "LEDGER_UNAVAILABLE"
	reasonStoreUnavailable = "STORE_UNAVAILABLE"
	reasonNotShared        = "LEDGER_NOT_SHARED"
	reasonNotFound         = "NOT_FOUND"
	reasonAlreadyExists    = "ALREADY_EXISTS"
	reasonEtagMismatch     = "ETAG_MISMATCH"
	reasonPolicyReadOnly   = "POLICY_READ_ONLY"
	reasonWrongState       = "WRONG_STATE"
	reasonNotBuilt         = "NOT_BUILT"
	reasonInternal         = "INTERNAL"
)

func reasons() []string {
	return []string{
		reasonInvalidRequest, reasonUnauthenticated, reasonRoleRequired, reasonBrokerFull, reasonDraining, reasonLedger,
		reasonStoreUnavailable, reasonNotShared, reasonNotFound, reasonAlreadyExists, reasonEtagMismatch, reasonPolicyReadOnly, reasonWrongState, reasonNotBuilt, reasonInternal,
	}
}

// The bounds of an error. It travels in the trailer of an RPC, with its details in base64 and its message once more: many clients take 8 KiB
// of that, and one that is offered much more gives up the whole connection.
const (
	maxErrorMessage = 512  // bytes
	maxViolations   = 3072 // bytes of all fields and descriptions
)

// cut keeps the beginning of a text that somebody else wrote.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	const rest = "…"
	return strings.ToValidUTF8(text[:size-len(rest)], "") + rest
}

// refusal is an error raised before any byte could have left.
func refusal(code codes.Code, reason, message string, details ...protoadapt.MessageV1) error {
	return refusalWith(code, reason, message, nil, details...)
}

// refusalWith is a refusal that tells a program more than its reason.
func refusalWith(code codes.Code, reason, message string, more map[string]string, details ...protoadapt.MessageV1) error {
	message = cut(message, maxErrorMessage)
	info := &errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: map[string]string{"sent": "false"}}
	maps.Copy(info.GetMetadata(), more)
	st, err := status.New(code, message).WithDetails(append([]protoadapt.MessageV1{info}, details...)...)
	if err != nil {
		return status.Error(code, message) // details that cannot be encoded must not hide the error
	}
	return st.Err()
}

// invalid turns the fields that cannot be taken into INVALID_ARGUMENT with a BadRequest; nil when there are none. The first ones are
// named, as many as an error holds; the message tells how many there are in all.
func invalid(violations []*call.InvalidError) error {
	if len(violations) == 0 {
		return nil
	}
	bad, left := &errdetails.BadRequest{}, maxViolations
	for i, v := range violations {
		field, problem := cut(v.Field, maxErrorMessage), cut(v.Problem, maxErrorMessage)
		if left -= len(field) + len(problem); left < 0 {
			problem = fmt.Sprintf("this and more, %d in all, cannot be taken either; mend those named first", len(violations)-i)
		}
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: field, Description: problem})
		if left < 0 {
			break
		}
	}
	message := cut(violations[0].Error(), maxErrorMessage-len(" (and 4294967295 more)"))
	if more := len(violations) - 1; more > 0 {
		message = fmt.Sprintf("%s (and %d more)", message, more)
	}
	return refusal(codes.InvalidArgument, reasonInvalidRequest, message, bad)
}

// violation gives the field that err speaks of; an error of another type speaks of the whole field.
func violation(err error, field string) *call.InvalidError {
	if v, ok := errors.AsType[*call.InvalidError](err); ok {
		return v
	}
	return &call.InvalidError{Field: field, Problem: err.Error()}
}

func notBuilt(rpc string) error {
	return refusal(codes.Unimplemented, reasonNotBuilt, rpc+" is not built in this version")
}
