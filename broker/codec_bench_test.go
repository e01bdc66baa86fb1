package broker

import (
	"bytes"
	"context"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// twoCodecs are what the benchmarks compare.
var twoCodecs = []struct {
	name  string
	codec encoding.CodecV2
}{{"stock", stockCodec()}, {"own", newCodec()}}

// usualRequest is a request as programs send them.
func usualRequest(url string) *pb.CallRequest {
	return &pb.CallRequest{
		Request: &pb.HttpRequest{Method: "GET", Url: url, Headers: []*pb.HttpHeader{
			{Name: "Accept", Value: "application/json"}, {Name: "X-Request-Id", Value: "4711"},
		}},
	}
}

// usualReply is the reply to it.
func usualReply(body int) *pb.CallResponse {
	return &pb.CallResponse{
		Outcome: pb.Outcome_OUTCOME_SUCCESS, Effect: pb.Effect_EFFECT_ANSWERED, Reason: pb.Reason_REASON_SUCCESS,
		Response: &pb.HttpResponse{
			Status: 200, Protocol: "HTTP/1.1", Body: bytes.Repeat([]byte("x"), body),
			Headers: []*pb.HttpHeader{
				{Name: "Content-Type", Value: "application/json"},
				{Name: "Date", Value: "Mon, 30 Nov 2026 12:00:00 GMT"},
				{Name: "Cache-Control", Value: "no-store"},
				{Name: "X-Request-Id", Value: "4711"},
			},
		},
		Attempts: []*pb.Attempt{{
			Number: 1, Kind: pb.AttemptKind_ATTEMPT_KIND_PRIMARY, Offset: &durationpb.Duration{Nanos: 12000}, Timeout: &durationpb.Duration{Seconds: 9, Nanos: 900e6},
			Duration: &durationpb.Duration{Nanos: 812345}, Status: 200, Evidence: pb.Evidence_EVIDENCE_ANSWERED, Origin: "http://api.example.com:80",
			RemoteAddress: "192.0.2.7:80", Protocol: "HTTP/1.1", ReusedConnection: true, StartTime: &timestamppb.Timestamp{Seconds: 1796040000, Nanos: 5},
			Decision: &pb.Decision{Verdict: pb.Verdict_VERDICT_STOP, Reason: pb.Reason_REASON_SUCCESS}, SpanId: "00f067aa0ba902b7", TraceId: "4bf92f3577b34da6a3ce929d0e0e4736",
		}},
		Elapsed: &durationpb.Duration{Nanos: 830000}, Sends: 1, RetrySafe: true, Next: pb.NextStep_NEXT_STEP_DONE,
		TraceId: "4bf92f3577b34da6a3ce929d0e0e4736", Policy: "policies/default@1", BrokerId: "broker@1",
	}
}

func BenchmarkCodecDecode(b *testing.B) {
	bare, posting := get("http://api.example.com/orders/17?part=all"), usualRequest("http://api.example.com/orders")
	posting.Request.Method, posting.Request.Body, posting.OperationId = "POST", bytes.Repeat([]byte("x"), 1024), "6f1c1d3e-7a52-4f07-9a41-0d5b8b1f3c55"
	posting.Labels = map[string]string{"team": "orders", "job": "nightly"}
	large := usualRequest("http://api.example.com/orders")
	large.Request.Method, large.Request.Body = "PUT", bytes.Repeat([]byte("x"), 100<<10)
	for _, in := range []struct {
		name string
		req  *pb.CallRequest
	}{{"bare", bare}, {"usual", usualRequest("http://api.example.com/orders/17?part=all")}, {"post", posting}, {"100KiB", large}} {
		raw, err := proto.Marshal(in.req)
		if err != nil {
			b.Fatal(err)
		}
		data := frames(raw)
		for _, c := range twoCodecs {
			b.Run(in.name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := c.codec.Unmarshal(data, &pb.CallRequest{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// frames cuts a message as HTTP/2 does.
func frames(raw []byte) mem.BufferSlice {
	var s mem.BufferSlice
	for len(raw) > 16<<10 {
		s, raw = append(s, mem.SliceBuffer(raw[:16<<10])), raw[16<<10:]
	}
	return append(s, mem.SliceBuffer(raw))
}

func BenchmarkCodecEncode(b *testing.B) {
	for _, in := range []struct {
		name string
		body int
	}{{"2B", 2}, {"1KiB", 1 << 10}, {"8KiB", 8 << 10}, {"40KiB", 40 << 10}, {"1MiB", 1 << 20}} {
		reply := usualReply(in.body)
		for _, c := range twoCodecs {
			b.Run(in.name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					out, err := c.codec.Marshal(reply)
					if err != nil {
						b.Fatal(err)
					}
					out.Free()
				}
			})
		}
	}
}

// rawCodec is a client's that does not serialize, so that a benchmark shows the server's work and little else.
type rawCodec struct{ name string }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (c rawCodec) Name() string { return c.name }

// BenchmarkCodecRPC is a whole Call over a gRPC connection of loopback, the upstream in memory.
func BenchmarkCodecRPC(b *testing.B) {
	for _, in := range []struct {
		name string
		body int
	}{{"1KiB", 1 << 10}, {"40KiB", 40 << 10}} {
		for _, c := range twoCodecs {
			b.Run(in.name+"/"+c.name, func(b *testing.B) { benchmarkCodecRPC(b, c.codec, in.body) })
		}
	}
}

func benchmarkCodecRPC(b *testing.B, c encoding.CodecV2, body int) {
	b.Helper()
	r := start(b, setup{codec: c, sender: senderFunc(func(context.Context, *call.Call) call.Result {
		res := answered(200)
		res.Response.Body = make([]byte, body) // made for every reply, as by h1
		res.Response.Headers = []call.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Date", Value: "Mon, 30 Nov 2026 12:00:00 GMT"}}
		return res
	})})
	raw, err := proto.Marshal(usualRequest("http://127.0.0.1/orders/17?part=all"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetParallelism(16)
	before := cpu()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			var got []byte
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
			err := r.conn.Invoke(ctx, pb.CallService_Call_FullMethodName, &raw, &got, grpc.ForceCodecV2(rawCodec{"proto"}))
			cancel()
			if err != nil || len(got) < body {
				b.Error(len(got), err)
				return
			}
		}
	})
	b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// cpu is what this process used so far: less blurred by a busy machine than the clock.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
