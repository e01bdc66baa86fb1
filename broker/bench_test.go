package broker

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

// BenchmarkCall is the whole path of a call but for gRPC: decode, match, decide, send over loopback, read, encode. A broker counts.
func BenchmarkCall(b *testing.B) {
	counts, err := tracing.New(b.Context(), func(string) (string, bool) { return "", false }, "bench", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("counts nothing", func(b *testing.B) { benchmarkCall(b, &tracing.Observer{}) })
	b.Run("counts", func(b *testing.B) { benchmarkCall(b, counts) })
}

func benchmarkCall(b *testing.B, observer *tracing.Observer) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go answerAlways(l)
	allow := true
	rule := policy.Rule{Name: policy.DefaultName, Revision: 1, File: true}
	rule.Egress.AllowCIDRs, rule.Egress.AnyPort = []string{"127.0.0.0/8"}, &allow
	table, err := policy.Compile([]policy.Rule{rule}, policy.Options{})
	if err != nil {
		b.Fatal(err)
	}
	g := guard.New(guard.Config{})
	tr := egress.New(egress.Config{Guard: g, UserAgent: "sallyport/bench"})
	defer tr.Close()
	s := NewCallService(CallConfig{
		Engine: engine.New(tr, observer, g, engine.NewOrigins()), Observer: observer, BrokerID: "bench@1", Log: slog.New(slog.DiscardHandler),
	}, table)
	req := &pb.CallRequest{Request: &pb.HttpRequest{Method: "GET", Url: "http://" + netip.MustParseAddrPort(l.Addr().String()).String() + "/a?b=c"}}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		resp, err := s.Call(ctx, req)
		if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
			b.Fatal(resp, err)
		}
	}
}

// answerAlways answers whatever comes, a read at a time: enough for small requests on loopback.
func answerAlways(l net.Listener) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\nContent-Length: 2\r\n\r\nok"
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for in := make([]byte, 4096); ; {
				if _, err := c.Read(in); err != nil {
					return
				}
				if _, err := io.WriteString(c, answer); err != nil {
					return
				}
			}
		}()
	}
}

// BenchmarkRPC is what gRPC and the broker's own edge cost around a call: token, reception, gate, an engine whose upstream answers at once.
func BenchmarkRPC(b *testing.B) {
	r := start(b, setup{sender: senderFunc(func(context.Context, *call.Call) call.Result { return answered(200) })})
	req := get("http://127.0.0.1/")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.calls.Call(ctx, req); err != nil {
			b.Fatal(err)
		}
	}
}
