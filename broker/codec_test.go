package broker

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// failer is a test, or a run of rapid.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkDecode reads a message with both codecs, whole and in parts, and finds them alike. The parts are overwritten afterwards, as
// gRPC does with its buffers.
func checkDecode(t failer, raw []byte) {
	t.Helper()
	stock := &pb.CallRequest{}
	stockErr := stockCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, stock)
	for _, parts := range [][][]byte{{raw}, {raw[:len(raw)/3], raw[len(raw)/3:]}} {
		var data mem.BufferSlice
		for i := range parts {
			parts[i] = bytes.Clone(parts[i])
			data = append(data, mem.SliceBuffer(parts[i]))
		}
		own := &pb.CallRequest{OperationId: "left over", Request: &pb.HttpRequest{Body: []byte("left over")}}
		err := newCodec().Unmarshal(data, own)
		for _, part := range parts {
			for i := range part {
				part[i] = '!'
			}
		}
		if fmt.Sprint(err) != fmt.Sprint(stockErr) {
			t.Fatalf("%d parts: %x is read with %v, by the stock codec with %v", len(parts), raw, err, stockErr)
		}
		if err == nil && !proto.Equal(own, stock) {
			t.Fatalf("%d parts: %x is read as\n%v, by the stock codec as\n%v", len(parts), raw, own, stock)
		}
	}
}

// checkEncode writes a message with both codecs and finds them alike to the byte.
func checkEncode(t failer, m *pb.CallResponse) {
	t.Helper()
	stock, stockErr := stockCodec().Marshal(m)
	own, err := newCodec().Marshal(m)
	if fmt.Sprint(err) != fmt.Sprint(stockErr) {
		t.Fatalf("%v is written with %v, by the stock codec with %v", m, err, stockErr)
	}
	if !bytes.Equal(own.Materialize(), stock.Materialize()) || own.Len() != stock.Len() {
		t.Fatalf("%v is written as\n%x, by the stock codec as\n%x", m, own.Materialize(), stock.Materialize())
	}
	own.Free()
	stock.Free()
}

// TestCodecKnowsEveryField sets each field of each message in turn, then all of them: none may take the slow way, and none may get
// lost. A field that is new in the proto and not in the codec fails here.
func TestCodecKnowsEveryField(t *testing.T) {
	eachField(&pb.CallRequest{}, func(name string, m proto.Message) {
		t.Run("CallRequest"+name, func(t *testing.T) {
			raw := marshal(t, m)
			if !decodeRequest(raw, false, &pb.CallRequest{}) {
				t.Error("not decoded by our own code")
			}
			checkDecode(t, raw)
		})
	})
	eachField(&pb.CallResponse{}, func(name string, m proto.Message) {
		t.Run("CallResponse"+name, func(t *testing.T) {
			reply := m.(*pb.CallResponse)
			if _, ok := encodeReply(reply, mem.DefaultBufferPool()); !ok {
				t.Error("not encoded by our own code")
			}
			checkEncode(t, reply)
		})
	})
}

// eachField visits messages like m: empty, with one field each, however deep, and with all.
func eachField(m proto.Message, visit func(name string, m proto.Message)) {
	visit("", proto.Clone(m))
	oneField(m.ProtoReflect(), "", func(name string) { visit(name, proto.Clone(m)) })
	fillMessage(m.ProtoReflect())
	visit("/all", m)
}

// oneField calls visit while one field under m is set, for each of them.
func oneField(m protoreflect.Message, path string, visit func(name string)) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := path + "." + string(f.Name())
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
			visit(name)
		case f.IsList():
			inner := m.Mutable(f).List().AppendMutable().Message()
			visit(name)
			oneField(inner, name, visit)
			m.Mutable(f).List().AppendMutable()
			visit(name + ".twice")
		case f.Message() != nil:
			inner := m.Mutable(f).Message()
			visit(name)
			oneField(inner, name, visit)
		default:
			for _, v := range scalars(f) {
				m.Set(f, v)
				visit(fmt.Sprintf("%s=%.9v", name, v))
			}
		}
		m.Clear(f)
	}
}

func fillMessage(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		case f.IsList():
			for range 3 {
				fillMessage(m.Mutable(f).List().AppendMutable().Message())
			}
		case f.Message() != nil:
			fillMessage(m.Mutable(f).Message())
		default:
			m.Set(f, scalars(f)[0])
		}
	}
}

// scalars are values at which an encoding could go wrong.
func scalars(f protoreflect.FieldDescriptor) []protoreflect.Value {
	of := protoreflect.ValueOf
	switch f.Kind() { //nolint:exhaustive // a kind that no message has yet panics below
	case protoreflect.StringKind:
		return []protoreflect.Value{of("v"), of("välue"), of(strings.Repeat("x", 130))}
	case protoreflect.BytesKind:
		return []protoreflect.Value{of([]byte{0, 0xff}), of(make([]byte, lentBody-1)), of(make([]byte, lentBody)), of(make([]byte, 70<<10))}
	case protoreflect.BoolKind:
		return []protoreflect.Value{of(true)}
	case protoreflect.Uint32Kind:
		return []protoreflect.Value{of(uint32(1)), of(^uint32(0))}
	case protoreflect.Uint64Kind:
		return []protoreflect.Value{of(uint64(300)), of(^uint64(0))}
	case protoreflect.Int32Kind:
		return []protoreflect.Value{of(int32(7)), of(int32(-1)), of(int32(-1 << 31))}
	case protoreflect.Int64Kind:
		return []protoreflect.Value{of(int64(7)), of(int64(-1)), of(int64(-1 << 63))}
	case protoreflect.EnumKind:
		return []protoreflect.Value{of(protoreflect.EnumNumber(1)), of(protoreflect.EnumNumber(99)), of(protoreflect.EnumNumber(-1))}
	}
	panic("a field of a kind the codec has never seen: " + f.FullName())
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// oddRequests are bytes that no plain serializer writes, most of them a request all the same.
func oddRequests() map[string][]byte {
	bytesField := func(number protowire.Number, v string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), v))
	}
	number := func(number protowire.Number, v uint64) string {
		return string(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v))
	}
	method, url, header := bytesField(1, "GET"), bytesField(2, "http://example.com/"), bytesField(3, bytesField(1, "A")+bytesField(2, "b"))
	label := bytesField(9, bytesField(1, "k")+bytesField(2, "v"))
	odd := map[string]string{
		"request twice":                     bytesField(1, method) + bytesField(1, url),
		"method twice":                      bytesField(1, method+bytesField(1, "PUT")),
		"body twice":                        bytesField(1, bytesField(4, "first")+bytesField(4, "second")),
		"headers apart":                     bytesField(1, header+method+header),
		"header name twice":                 bytesField(1, bytesField(3, bytesField(1, "A")+bytesField(1, "B"))),
		"too many headers":                  bytesField(1, strings.Repeat(header, manyHeaders+1)),
		"operation id twice":                bytesField(2, "first") + bytesField(2, "second"),
		"number twice":                      number(4, 1) + number(4, 2),
		"duration twice":                    bytesField(5, number(1, 1)) + bytesField(5, number(2, 2)),
		"seconds twice":                     bytesField(5, number(1, 1)+number(1, 2)),
		"labels apart":                      label + number(4, 1) + label,
		"label name twice":                  bytesField(9, bytesField(1, "a")+bytesField(1, "b")),
		"label with an unknown field":       bytesField(9, bytesField(1, "a")+number(3, 1)),
		"unknown field":                     bytesField(14, "new"),
		"unknown field in the request":      bytesField(1, bytesField(5, "new")),
		"unknown field in a header":         bytesField(1, bytesField(3, bytesField(4, "new"))),
		"unknown field in a duration":       bytesField(5, number(3, 1)),
		"unknown field with a large number": number(1<<29-1, 1),
		"field number 0":                    number(0, 1),
		"field number above the largest":    string(protowire.AppendVarint(nil, 1<<32|2)) + "\x00",
		"request as a number":               number(1, 1),
		"number as bytes":                   bytesField(4, "\x01"),
		"number as fixed32":                 "\x25\x01\x00\x00\x00",
		"a group":                           "\x73\x74",
		"the end of a group":                "\x74",
		"a broken group":                    "\x73",
		"wire type 7":                       "\x0f",
		"not UTF-8 in the operation id":     bytesField(2, "\xff"),
		"not UTF-8 in the method":           bytesField(1, bytesField(1, "G\xff")),
		"not UTF-8 in the URL":              bytesField(1, bytesField(2, "\xff")),
		"not UTF-8 in a header name":        bytesField(1, bytesField(3, bytesField(1, "\xc3"))+"\x1a\x00"),
		"not UTF-8 in a header value":       bytesField(1, bytesField(3, bytesField(2, "\xff"))),
		"not UTF-8 in a label":              bytesField(9, bytesField(2, "\xff")),
		"a long varint":                     "\x20" + strings.Repeat("\xff", 10) + "\x01",
		"a varint that does not end":        "\x20\xff",
		"a tag that does not end":           "\xa0",
		"a length beyond the end":           "\x12\x05abc",
		"a huge length":                     "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a broken header":                   bytesField(1, bytesField(3, "\x0a\x05a")),
		"a broken duration":                 bytesField(10, "\x08"),
		"a broken time":                     bytesField(12, "\x10\xff"),
		"a broken label":                    bytesField(9, "\x0a"),
	}
	raw := make(map[string][]byte, len(odd))
	for name, s := range odd {
		raw[name] = []byte(s)
	}
	return raw
}

// TestCodecLeavesOddRequestsToStock: what they mean, and the words of the error when they mean nothing, are not ours to decide.
func TestCodecLeavesOddRequestsToStock(t *testing.T) {
	for name, raw := range oddRequests() {
		t.Run(name, func(t *testing.T) {
			if decodeRequest(raw, false, &pb.CallRequest{}) {
				t.Error("decoded by our own code")
			}
			checkDecode(t, raw)
		})
	}
}

// TestCodecReadsUnusualButPlainRequests: these are not worth the slow way.
func TestCodecReadsUnusualButPlainRequests(t *testing.T) {
	for name, raw := range map[string]string{
		"fields from the last to the first":  "\x68\x02\x12\x01a\x0a\x0c\x22\x01b\x1a\x00\x12\x01u\x0a\x02Hm",
		"zeros, as some serializers write":   "\x20\x00\x12\x00\x0a\x04\x22\x00\x0a\x00\x2a\x04\x08\x00\x10\x00\x40\x00",
		"a tag longer than it must be":       "\xa0\x00\x01",
		"a number longer than it must be":    "\x20\x81\x80\x00",
		"an enum beyond 32 bits":             "\x18\xff\xff\xff\xff\x1f",
		"a bool of 2":                        "\x40\x02",
		"an empty label":                     "\x4a\x00",
		"a label given twice":                "\x4a\x05\x0a\x01k\x12\x00\x4a\x06\x0a\x01k\x12\x01v",
		"a label, its value before its name": "\x4a\x06\x12\x01v\x0a\x01k",
		"a negative second":                  "\x2a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		t.Run(name, func(t *testing.T) {
			if !decodeRequest([]byte(raw), false, &pb.CallRequest{}) {
				t.Error("not decoded by our own code")
			}
			checkDecode(t, []byte(raw))
		})
	}
}

// TestCodecLeavesOddRepliesToStock: unknown fields are kept wherever they are, and errors are the generated code's.
func TestCodecLeavesOddRepliesToStock(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	full := &pb.CallResponse{}
	fillMessage(full.ProtoReflect())
	eachMessage(full.ProtoReflect(), func(m protoreflect.Message) {
		m.SetUnknown(unknown)
		t.Run("unknown in "+string(m.Descriptor().Name()), func(t *testing.T) { checkOddReply(t, full) })
		m.SetUnknown(nil)
	})
	for name, m := range map[string]*pb.CallResponse{
		"no header":           {Response: &pb.HttpResponse{Headers: []*pb.HttpHeader{nil}}},
		"no attempt":          {Attempts: []*pb.Attempt{nil, {Number: 1}}},
		"a detail of bytes":   {Detail: "\xff"},
		"a value of bytes":    {Response: &pb.HttpResponse{Trailers: []*pb.HttpHeader{{Value: "\xff"}}}},
		"an origin of bytes":  {Attempts: []*pb.Attempt{{Origin: "\xff"}}},
		"a large odd message": {Response: &pb.HttpResponse{Body: make([]byte, lentBody), Protocol: "\xff"}},
	} {
		t.Run(name, func(t *testing.T) { checkOddReply(t, m) })
	}
}

func checkOddReply(t *testing.T, m *pb.CallResponse) {
	t.Helper()
	if _, ok := encodeReply(m, mem.DefaultBufferPool()); ok {
		t.Error("encoded by our own code")
	}
	checkEncode(t, m)
}

// eachMessage visits m and what is in it.
func eachMessage(m protoreflect.Message, visit func(m protoreflect.Message)) {
	visit(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList():
			for i := range v.List().Len() {
				eachMessage(v.List().Get(i).Message(), visit)
			}
		case f.Message() != nil:
			eachMessage(v.Message(), visit)
		}
		return true
	})
}

// countingPool gives dirty buffers and knows which are out.
type countingPool struct {
	out map[*[]byte]int // the length asked for
}

func (p *countingPool) Get(n int) *[]byte {
	b := bytes.Repeat([]byte{0xa5}, n)
	p.out[&b] = n
	return &b
}

func (p *countingPool) Put(b *[]byte) {
	if _, ok := p.out[b]; !ok {
		panic("given back twice")
	}
	delete(p.out, b)
	copy((*b)[:cap(*b)], bytes.Repeat([]byte("!"), cap(*b)))
}

// TestCodecLendsLargeBodies: a large body goes out from where it is, a small one is copied, and the buffer beside it is given back
// when all is sent and not before.
func TestCodecLendsLargeBodies(t *testing.T) {
	for _, size := range []int{0, 1, lentBody - 1, lentBody, 1 << 20} {
		m := usualReply(size)
		want := marshal(t, m)
		pool := &countingPool{out: make(map[*[]byte]int)}
		out, ok := encodeReply(m, pool)
		if !ok {
			t.Fatal("not encoded")
		}
		lent := slices.ContainsFunc(out, func(b mem.Buffer) bool { return size > 0 && b.Len() > 0 && &b.ReadOnlyData()[0] == &m.Response.Body[0] })
		if lent != (size >= lentBody) {
			t.Errorf("a body of %d bytes is lent: %t", size, lent)
		}
		if len(pool.out) != 1 {
			t.Errorf("%d buffers taken for a body of %d bytes", len(pool.out), size)
		}
		for _, n := range pool.out {
			if n > lentBody+leastPooled {
				t.Errorf("a buffer of %d bytes for a body of %d", n, size)
			}
		}
		if !lent {
			clear(m.GetResponse().GetBody()) // nobody needs it any more
		}
		out.Ref() // the transport's hold, beside that of the RPC
		out.Free()
		if len(pool.out) != 1 {
			t.Error("the buffer is back while gRPC sends it")
		}
		if !bytes.Equal(out.Materialize(), want) {
			t.Errorf("other bytes with a body of %d", size)
		}
		out.Free()
		if len(pool.out) != 0 {
			t.Errorf("%d buffers never came back, with a body of %d", len(pool.out), size)
		}
	}
}

// TestCodecBodyIsTheCallersOwn: appending to what was decoded writes over nothing.
func TestCodecBodyIsTheCallersOwn(t *testing.T) {
	in := usualRequest("http://example.com/")
	in.Request.Body, in.OperationId = make([]byte, 40<<10), "an operation of its own"
	raw := marshal(t, in)
	m := &pb.CallRequest{}
	if !decodeRequest(raw, true, m) {
		t.Fatal("not decoded")
	}
	_ = append(m.Request.Body, "overwritten"...)
	_ = append(m.Request.Headers, &pb.HttpHeader{})
	if !bytes.Equal(raw, marshal(t, in)) || !proto.Equal(m, in) {
		t.Error("the message changed")
	}
}

// TestCodecLeavesOthersToStock: messages that are not ours, what is no message, and nothing.
func TestCodecLeavesOthersToStock(t *testing.T) {
	own, stock := newCodec(), stockCodec()
	if own.Name() != stock.Name() {
		t.Errorf("its name is %q", own.Name())
	}
	var noReply *pb.CallResponse
	for _, v := range []any{
		&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, &pb.CallRequest{OperationId: "op"}, "text", noReply, durationpb.New(1),
	} {
		want, wantErr := stock.Marshal(v)
		got, err := own.Marshal(v)
		if !bytes.Equal(got.Materialize(), want.Materialize()) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%T is written as %x, %v", v, got.Materialize(), err)
		}
	}
	raw := mem.BufferSlice{mem.SliceBuffer("\x12\x02op")}
	for _, empty := range []any{&pb.GetOperationRequest{}, &pb.CallResponse{}, new(string)} {
		fresh := func() any { return reflect.New(reflect.TypeOf(empty).Elem()).Interface() }
		want, got := fresh(), fresh()
		wantErr, err := stock.Unmarshal(raw, want), own.Unmarshal(raw, got)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%T is read with %v", got, err)
		}
		if m, ok := got.(proto.Message); ok && !proto.Equal(m, want.(proto.Message)) {
			t.Errorf("read as %v", got)
		}
	}
}

// TestCodecOnTheWire: through a real connection both codecs answer alike, whatever the content-subtype is called, and what is too
// large or broken is refused with the same code.
func TestCodecOnTheWire(t *testing.T) {
	answer := func(size int) senderFunc {
		return func(context.Context, *call.Call) call.Result {
			r := answered(200)
			r.Response.Body = bytes.Repeat([]byte("x"), size)
			return r
		}
	}
	good := usualRequest("http://127.0.0.1/")
	large := usualRequest("http://127.0.0.1/")
	large.Request.Method, large.Request.Body = "PUT", make([]byte, 1<<20)
	over := usualRequest("http://127.0.0.1/")
	over.Request.Body = make([]byte, maxMessage)
	for _, tt := range []struct {
		name    string
		subtype string
		request []byte
		answer  int
		code    codes.Code
	}{
		{"proto", "proto", marshal(t, good), 1 << 10, codes.OK},
		{"another subtype is read as proto", "unheard-of", marshal(t, good), 1 << 10, codes.OK},
		{"large both ways", "proto", marshal(t, large), 1 << 20, codes.OK},
		{"an unknown field", "proto", append(marshal(t, good), 0x70, 1), 1, codes.OK},
		{"broken", "proto", []byte{0xff}, 1, codes.Internal},
		{"a request over the limit", "proto", marshal(t, over), 1, codes.ResourceExhausted},
		{"a reply over the limit", "proto", marshal(t, good), maxMessage, codes.ResourceExhausted},
	} {
		for _, c := range twoCodecs {
			t.Run(tt.name+"/"+c.name, func(t *testing.T) {
				r := start(t, setup{codec: c.codec, sender: answer(tt.answer)})
				var raw []byte
				err := r.conn.Invoke(within(t), pb.CallService_Call_FullMethodName, &tt.request, &raw,
					grpc.ForceCodecV2(rawCodec{tt.subtype}), grpc.MaxCallRecvMsgSize(1<<30))
				if status.Code(err) != tt.code {
					t.Fatal(err)
				}
				if err != nil {
					return
				}
				reply := &pb.CallResponse{}
				if err := proto.Unmarshal(raw, reply); err != nil || reply.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || len(reply.GetResponse().GetBody()) != tt.answer {
					t.Errorf("%v, %s with %d bytes: %s", err, reply.GetOutcome(), len(reply.GetResponse().GetBody()), reply.GetDetail())
				}
			})
		}
	}
}
