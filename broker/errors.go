package broker

import (
	"errors"
	"fmt"

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
	reasonInvalidRequest  = "INVALID_REQUEST"
	reasonUnauthenticated = "UNAUTHENTICATED"
	reasonRoleRequired    = "ROLE_REQUIRED"
	reasonBrokerFull      = "BROKER_FULL"
	reasonDraining        = "DRAINING"
	reasonStore           = "STORE_UNAVAILABLE"
	reasonNotFound        = "NOT_FOUND"
	reasonNotBuilt        = "NOT_BUILT"
	reasonInternal        = "INTERNAL"
)

func reasons() []string {
	return []string{
		reasonInvalidRequest, reasonUnauthenticated, reasonRoleRequired, reasonBrokerFull, reasonDraining,
		reasonStore, reasonNotFound, reasonNotBuilt, reasonInternal,
	}
}

// refusal is an error raised before any byte could have left.
func refusal(code codes.Code, reason, message string, details ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: map[string]string{"sent": "false"}}
	st, err := status.New(code, message).WithDetails(append([]protoadapt.MessageV1{info}, details...)...)
	if err != nil {
		return status.Error(code, message) // details that cannot be encoded must not hide the error
	}
	return st.Err()
}

// invalid turns the fields that cannot be taken into INVALID_ARGUMENT with a BadRequest; nil when there are none.
func invalid(violations []*call.InvalidError) error {
	if len(violations) == 0 {
		return nil
	}
	bad := &errdetails.BadRequest{}
	for _, v := range violations {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Problem})
	}
	message := violations[0].Error()
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
