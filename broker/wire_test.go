package broker

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // as in the binary, where the exporter of spans brings it
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/egress/guard"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// plain answers calls with an empty reply, from a message that grpc-go has read.
type plain struct {
	pb.UnimplementedCallServiceServer
}

func (plain) Call(context.Context, *pb.CallRequest) (*pb.CallResponse, error) {
	return &pb.CallResponse{}, nil
}

// plainServer is grpc-go as it is, with a limit of the size of messages.
func plainServer(t *testing.T, most int) string {
	t.Helper()
	s := grpc.NewServer(grpc.MaxRecvMsgSize(most))
	pb.RegisterCallServiceServer(s, plain{})
	healthpb.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	l, _ := listen(t, false)
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// framed is a message as it stands on the wire.
func framed(flag byte, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(content))), content...)
}

func zipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBrokenMessagesAreAnsweredAsByGRPC: the broker reads messages itself (wire.go). What is wrong with one is answered with the code
// and the words of grpc-go's own handlers, and what is right is taken.
func TestBrokenMessagesAreAnsweredAsByGRPC(t *testing.T) {
	ask, err := proto.Marshal(get("http://127.0.0.1/"))
	if err != nil {
		t.Fatal(err)
	}
	gzipped := [2]string{"grpc-encoding", "gzip"}
	broker := onSockets(t, setup{})
	for _, service := range []struct {
		method  string
		most    int
		message []byte
		lasts   bool // with a right message it has no end
	}{
		{pb.CallService_Call_FullMethodName, maxMessage, ask, false},
		{healthpb.Health_Check_FullMethodName, maxOpenMessage, nil, false},
		{healthpb.Health_Watch_FullMethodName, maxOpenMessage, nil, true},
		{reflectionMethod, maxOpenMessage, []byte{0x3a, 0}, false},
	} {
		t.Run(service.method, func(t *testing.T) {
			ours, theirs := broker.raw(t), (&reachable{address: plainServer(t, service.most)}).raw(t)
			for n, row := range []struct {
				name    string
				content []byte
				more    [][2]string
				right   bool
			}{
				{"a message", framed(0, service.message), nil, true},
				{"no message", nil, nil, false},
				{"two messages", append(framed(0, service.message), framed(0, service.message)...), nil, false},
				{"garbage", framed(0, []byte{0xff, 0xff}), nil, false},
				{"a wrong flag", framed(2, service.message), nil, false},
				{"half a head", []byte{0, 0}, nil, false},
				{"a head without its message", framed(0, make([]byte, 100))[:5], nil, false},
				{"half a message", framed(0, make([]byte, 100))[:50], nil, false},
				{"a second message in half", append(framed(0, service.message), 0, 0), nil, false},
				{"too large", binary.BigEndian.AppendUint32([]byte{0}, uint32(service.most+1)), nil, false},
				{"far too large", []byte{0, 0xff, 0xff, 0xff, 0xff}, nil, false},
				{"said to be packed, without a word how", framed(1, service.message), nil, false},
				{"packed in no way", framed(1, service.message), [][2]string{{"grpc-encoding", encoding.Identity}}, false},
				{"packed in an unknown way", framed(1, service.message), [][2]string{{"grpc-encoding", "br"}}, false},
				{"packed", framed(1, zipped(t, service.message)), [][2]string{gzipped}, true},
				{"not packed, though it might be", framed(0, service.message), [][2]string{gzipped}, true},
				{"badly packed", framed(1, []byte("no gzip")), [][2]string{gzipped}, false},
				{"packed in half", framed(1, zipped(t, make([]byte, 1000))[:20]), [][2]string{gzipped}, false},
				{"packed garbage", framed(1, zipped(t, []byte{0xff, 0xff})), [][2]string{gzipped}, false},
				{"too large when unpacked", framed(1, append(bytes.Repeat(zipped(t, make([]byte, service.most/16)), 16), zipped(t, []byte{0})...)), [][2]string{gzipped}, false},
				{"another subtype", framed(0, service.message), [][2]string{{"content-type", "application/grpc+json"}}, true},
			} {
				if row.right && service.lasts {
					continue
				}
				stream := uint32(2*n + 1)
				var got [2]error
				for i, c := range []*rawClient{ours, theirs} {
					c.open(stream, service.method, 0, false, row.more...)
					content := row.content
					for ; len(content) > 16<<10; content = content[16<<10:] {
						part := content[:16<<10]
						c.write(func() error { return c.framer.WriteData(stream, false, part) })
					}
					c.write(func() error { return c.framer.WriteData(stream, true, content) })
					got[i] = c.answer(stream)
				}
				if status.Code(got[0]) != status.Code(got[1]) || status.Convert(got[0]).Message() != status.Convert(got[1]).Message() {
					t.Errorf("%s: %v; grpc-go says %v", row.name, got[0], got[1])
				}
				if row.right && got[0] != nil {
					t.Errorf("%s: %v", row.name, got[0])
				}
			}
		})
	}
}

// TestStreamThatEndsInAMessageHasNoEnd: the end of the stream is that of the body only between two messages. Else the upstream would take
// the part for the whole.
func TestStreamThatEndsInAMessageHasNoEnd(t *testing.T) {
	begun, read := make(chan error, 1), make(chan error, 1) // receive one value per request
	upstream := newWeb(t, "HTTP/1.1", func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, len("a part")))
		begun <- err
		_, err = io.Copy(io.Discard, r.Body)
		read <- err
	})
	head, err := proto.Marshal(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Head{Head: headOf("POST", upstream.URL)}})
	if err != nil {
		t.Fatal(err)
	}
	part, err := proto.Marshal(chunk([]byte("a part")))
	if err != nil {
		t.Fatal(err)
	}
	transport := egress.New(egress.Config{Guard: guard.New(guard.Config{Dev: true}), UserAgent: "sallyport/test"})
	t.Cleanup(transport.Close)
	c := onSockets(t, setup{sender: transport}).raw(t)
	begin := append(framed(0, head), framed(0, part)...)
	for n, row := range []struct {
		name  string
		rest  []byte
		whole bool
	}{
		{"between messages", nil, true},
		{"in a head", framed(0, part)[:3], false},
		{"after a head", framed(0, part)[:5], false},
		{"in a message", framed(0, part)[:7], false},
	} {
		stream := uint32(2*n + 1)
		c.open(stream, pb.CallService_StreamCall_FullMethodName, 0, false)
		c.write(func() error { return c.framer.WriteData(stream, false, begin) })
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		c.write(func() error { return c.framer.WriteData(stream, true, row.rest) })
		said := c.answer(stream)
		if err := <-read; (err == nil) != row.whole || (status.Code(said) == codes.OK) != row.whole {
			t.Errorf("%s: the upstream read the body to %v, and the caller was told %v", row.name, err, said)
		}
	}
}
