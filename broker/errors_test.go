package broker

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// A trailer that is too large costs the client its connection, with all other RPCs on it.
func TestErrorsFitIntoATrailer(t *testing.T) {
	r := start(t, setup{store: onDisk(t)})
	long := strings.Repeat("\u00fc", 1<<19)
	paths := make([]string, 100_000)
	for i := range paths {
		paths[i] = fmt.Sprintf("retry.x%d", i)
	}
	for what, do := range map[string]func() error{
		"a policy of a long name": func() error {
			_, err := r.policies.GetPolicy(within(t), &pb.GetPolicyRequest{Name: "policies/" + long})
			return err
		},
		"a deletion of a long name": func() error {
			_, err := r.policies.DeletePolicy(within(t), &pb.DeletePolicyRequest{Name: "policies/" + long})
			return err
		},
		"a mask of many paths": func() error {
			_, err := r.policies.UpdatePolicy(within(t), &pb.UpdatePolicyRequest{
				Policy: &pb.Policy{Name: "policies/a"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
			})
			return err
		},
		"many statuses": func() error {
			_, err := r.policies.CreatePolicy(within(t), &pb.CreatePolicyRequest{
				PolicyId: "a", Policy: &pb.Policy{Retry: &pb.RetryPolicy{Statuses: make([]uint32, 100_000)}},
			})
			return err
		},
		"a field of a long name": func() error {
			_, err := r.policies.CreatePolicy(within(t), &pb.CreatePolicyRequest{
				PolicyId: "a", Policy: &pb.Policy{Headers: &pb.HeadersPolicy{Set: map[string]string{long: "x"}}},
			})
			return err
		},
	} {
		err := do()
		st := status.Convert(err)
		if st.Code() != codes.InvalidArgument && st.Code() != codes.NotFound {
			t.Errorf("%s: %.200v", what, err)
		}
		if size := proto.Size(st.Proto()); size > 5<<10 || !utf8.ValidString(st.Message()) {
			t.Errorf("%s: %d bytes, %.600s", what, size, st.Message())
		}
		if info := detail[errdetails.ErrorInfo](err); info == nil || info.GetMetadata()["sent"] != "false" {
			t.Errorf("%s: ErrorInfo is %v", what, info)
		}
	}
}

func TestViolationsThatDoNotFitAreCounted(t *testing.T) {
	d := decoder{}
	for i := range 1000 {
		d.add(fmt.Sprintf("f[%d]", i), "is wrong")
	}
	err := invalid(d.violations)
	if got := status.Convert(err).Message(); got != "f[0]: is wrong (and 999 more)" {
		t.Errorf("the message is %q", got)
	}
	named := detail[errdetails.BadRequest](err).GetFieldViolations()
	last := named[len(named)-1]
	if want := fmt.Sprintf("this and more, %d in all, cannot be taken either; mend those named first", 1001-len(named)); last.GetDescription() != want ||
		last.GetField() != fmt.Sprintf("f[%d]", len(named)-1) || len(named) < 50 {
		t.Errorf("the last of %d is %v, want %q", len(named), last, want)
	}
}
