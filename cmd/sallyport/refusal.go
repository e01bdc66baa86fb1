package main

import (
	"io"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"

	"github.com/sallyport/sallyport/client"
)

// printRefusal says in one line what the broker, or the way to it, answered, and below it which fields are meant. Whether anything
// was sent stands in it always: it decides whether the caller may try again.
func printRefusal(w io.Writer, r client.Refusal, broker string) {
	name := code.Code_name[int32(r.Code)] //nolint:gosec // seventeen codes
	if r.Reason != "" {
		name += " " + r.Reason
	}
	sent := "unknown whether it was sent"
	if r.NothingSent {
		sent = "nothing was sent"
	}
	sayf(w, "sallyport: %s: %s; %s\n", plain(name), plain(r.Message), sent)
	for _, v := range r.Violations {
		if len(r.Violations) == 1 && strings.Contains(r.Message, v.Problem) {
			break // the line above has said it
		}
		sayf(w, "  %s: %s\n", plain(v.Field), plain(v.Problem))
	}
	if r.RetryAfter > 0 {
		sayf(w, "  try again in %s\n", brief(r.RetryAfter))
	}
	if r.Code == codes.Unavailable && r.Reason == "" {
		sayf(w, "  is a broker running at %s? start one with: sallyport serve\n", plain(broker))
	}
}
