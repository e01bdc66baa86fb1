package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/client"
)

// refused makes of a gRPC error the lines that say what to mend, and its exit code. Other errors stay as they are.
func refused(err error, broker string) error {
	if err == nil {
		return nil
	}
	if _, said := errors.AsType[*exitError](err); said {
		return err
	}
	if _, ok := status.FromError(err); !ok {
		return err
	}
	return &exitError{code: exitGRPC, err: errors.New(strings.Join(refusalLines(err, broker), "\n"))}
}

// refusalLines says what a broker refuses, a line for each field that it names, or why it gave no answer.
func refusalLines(err error, broker string) []string {
	r := client.Explain(err)
	name := code.Code_name[int32(r.Code)] //nolint:gosec // seventeen codes
	if len(r.Violations) > 0 {
		lines := make([]string, len(r.Violations))
		for i, v := range r.Violations {
			lines[i] = fmt.Sprintf("%s: %s: %s", name, v.Field, v.Problem)
		}
		return lines
	}
	line := name + ": " + lostWords(r)
	switch {
	case r.Reason != "":
	case r.Code == codes.Unavailable:
		line += fmt.Sprintf("; does a broker listen at %s (--broker), and with TLS (--ca)?", broker)
	case r.Code == codes.DeadlineExceeded:
		line += fmt.Sprintf("; the broker at %s gave no answer in time: look what holds before you repeat a write", broker)
	case r.Code == codes.Unimplemented:
		line += fmt.Sprintf("; the broker at %s does not administer: give the address of its --admin, or a newer broker", broker)
	}
	if r.Ledger != "" {
		line += ledgerWords(r)
	}
	switch r.Code {
	case codes.Unauthenticated:
		line += "; set SALLYPORT_TOKEN, or give --client-cert and --client-key"
	case codes.PermissionDenied:
		line += "; whoever runs the broker gives roles"
	}
	return []string{line}
}

// ledgerWords says who does not know the operation: another broker may have another ledger, and none knows what was before it.
func ledgerWords(r client.Refusal) string {
	text := "; asked was ledger " + r.Ledger
	if !r.KnownSince.IsZero() {
		text += ", which knows of operations since " + r.KnownSince.UTC().Format(time.RFC3339)
	}
	return text + ": not known is no proof that nothing was sent"
}

// refusalOf is refusalLines where several policies are spoken of.
func refusalOf(name string, err error, broker string) []string {
	lines := refusalLines(err, broker)
	for i, line := range lines {
		if !strings.Contains(line, name) {
			lines[i] = name + ": " + line
		}
	}
	return lines
}

// lostWords is the message of an error. The library wraps what happened to a connection into words of its own.
func lostWords(r client.Refusal) string {
	if r.Reason != "" || r.Code != codes.Unavailable {
		return r.Message
	}
	text := r.Message
	if _, inner, ok := strings.Cut(text, `desc = "`); ok {
		text = strings.TrimSuffix(inner, `"`)
	}
	for _, lead := range []string{"transport: ", "Error while dialing: ", "authentication handshake failed: "} {
		text = strings.TrimPrefix(text, lead)
	}
	return text
}
