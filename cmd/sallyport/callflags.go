package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const (
	// maxBodyBytes is what a policy may allow at most (body.max_request_bytes); nothing larger is read from a file.
	maxBodyBytes = 16 << 20
	// streamedAbove is what it allows by default: a larger body is streamed, unless the call has an operation id.
	streamedAbove = 3 << 20
)

// callFlags are the flags of `call`. Zero means: as the policy says.
type callFlags struct {
	headers          []string
	body             string
	deadline         time.Duration
	operationID      string
	repeatSafety     string
	maxAttempts      uint32
	attemptTimeout   time.Duration
	reserve          time.Duration
	maxResponseBytes uint64
	singleUseBody    bool
	output           string

	brokerFlags
}

func (f *callFlags) declare(fs *pflag.FlagSet) {
	fs.StringArrayVarP(&f.headers, "header", "H", nil, "request field, 'Name: value' (repeatable)")
	fs.StringVarP(&f.body, "data", "d", "", "request body; @FILE reads a file, @- standard input; one of more than 3 MiB is streamed")
	fs.DurationVar(&f.deadline, "deadline", 0, "time allowed for the whole call (default: the policy's)")
	fs.StringVar(&f.operationID, "operation-id", "", "identity of the operation: the same id is the same operation")
	fs.StringVar(&f.repeatSafety, "repeat-safety", "", "never | idempotent: what you know of repeating it (default: the policy decides)")
	fs.Uint32Var(&f.maxAttempts, "max-attempts", 0, "may lower the policy's number of attempts")
	fs.DurationVar(&f.attemptTimeout, "attempt-timeout", 0, "may lower the policy's time for one attempt")
	fs.DurationVar(&f.reserve, "reserve", 0, "time you want left when the answer arrives")
	fs.Uint64Var(&f.maxResponseBytes, "max-response-bytes", 0, "may lower the policy's limit of the answer's body")
	fs.BoolVar(&f.singleUseBody, "single-use-body", false, "the body may be sent once only")
	f.brokerFlags.declare(fs)
	fs.StringVarP(&f.output, "output", "o", "text", "text | json, or a file for the body of the answer, which is then streamed; - is standard output")
}

// request makes the request, but for its body. Only what the command line itself can get wrong is checked: the broker knows the rest better.
func (f *callFlags) request(method, url string) (*pb.CallRequest, error) {
	req := &pb.CallRequest{
		Request:          &pb.HttpRequest{Method: method, Url: url},
		OperationId:      f.operationID,
		MaxAttempts:      f.maxAttempts,
		MaxResponseBytes: f.maxResponseBytes,
		SingleUseBody:    f.singleUseBody,
	}
	switch f.repeatSafety {
	case "":
	case "never":
		req.RepeatSafety = pb.RepeatSafety_REPEAT_SAFETY_NEVER
	case "idempotent":
		req.RepeatSafety = pb.RepeatSafety_REPEAT_SAFETY_IDEMPOTENT
	default:
		return nil, oneOf("repeat-safety", f.repeatSafety, "never", "idempotent")
	}
	if f.attemptTimeout != 0 {
		req.AttemptTimeout = durationpb.New(f.attemptTimeout)
	}
	if f.reserve != 0 {
		req.Reserve = durationpb.New(f.reserve)
	}
	for _, h := range f.headers {
		field, err := parseHeader(h)
		if err != nil {
			return nil, err
		}
		req.Request.Headers = append(req.Request.Headers, field)
	}
	return req, nil
}

// parseHeader reads 'Name: value'; blanks around the value are not part of it (RFC 9110 §5.5).
func parseHeader(s string) (*pb.HttpHeader, error) {
	name, value, ok := strings.Cut(s, ":")
	if !ok || strings.TrimSpace(name) == "" {
		return nil, errors.New("-H: write 'Name: value'") // without the text: it may hold a secret
	}
	h := &pb.HttpHeader{Name: strings.TrimSpace(name)}
	if value = strings.Trim(value, " \t"); utf8.ValidString(value) {
		h.Value = value
	} else {
		h.RawValue = []byte(value)
	}
	return h, nil
}

func readBody(d string, in io.Reader) ([]byte, error) {
	path, isFile := strings.CutPrefix(d, "@")
	switch {
	case !isFile:
		return []byte(d), nil
	case path == "":
		return nil, errors.New("-d @: name a file, or @- for standard input")
	case path != "-":
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("-d: %w", err)
		}
		defer func() { _ = f.Close() }() // read only
		in = f
	}
	body, err := io.ReadAll(io.LimitReader(in, maxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("-d %s: %w", d, err)
	}
	if len(body) > maxBodyBytes {
		return nil, fmt.Errorf("-d %s: more than %d bytes, the most a policy can allow", d, maxBodyBytes)
	}
	return body, nil
}

// withDeadline is the context of what has a --deadline.
func withDeadline(cmd *cobra.Command, deadline time.Duration) (context.Context, context.CancelFunc, error) {
	switch {
	case !cmd.Flags().Changed("deadline"):
		return cmd.Context(), func() {}, nil
	case deadline <= 0:
		return nil, nil, usagef("--deadline %s: give a duration above zero", deadline)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), deadline)
	return ctx, cancel, nil
}
