package history

import "strings"

// The gRPC codes that are looked at.
const (
	OK              = "OK"
	NotFound        = "NOT_FOUND"
	InvalidArgument = "INVALID_ARGUMENT"
	Unimplemented   = "UNIMPLEMENTED"
)

// Code writes a gRPC code as the contract does: DeadlineExceeded is DEADLINE_EXCEEDED.
func Code(name string) string {
	switch name {
	case OK:
		return name
	case "Canceled":
		return "CANCELLED"
	}
	var out strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	return strings.ToUpper(out.String())
}
