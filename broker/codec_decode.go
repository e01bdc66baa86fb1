package broker

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// Tags as they stand on the wire: the number of a field, and how its value is written.
const (
	tagRequest          = 1<<3 | delimited
	tagOperationID      = 2<<3 | delimited
	tagRepeatSafety     = 3<<3 | varint
	tagMaxAttempts      = 4<<3 | varint
	tagAttemptTimeout   = 5<<3 | delimited
	tagMaxResponseBytes = 6<<3 | varint
	tagCriticality      = 7<<3 | varint
	tagSingleUseBody    = 8<<3 | varint
	tagLabels           = 9<<3 | delimited
	tagReserve          = 10<<3 | delimited
	tagAllowDeferral    = 11<<3 | varint
	tagExpireTime       = 12<<3 | delimited
	tagReport           = 13<<3 | varint

	tagMethod  = 1<<3 | delimited
	tagURL     = 2<<3 | delimited
	tagHeaders = 3<<3 | delimited
	tagBody    = 4<<3 | delimited

	tagName     = 1<<3 | delimited
	tagValue    = 2<<3 | delimited
	tagRawValue = 3<<3 | delimited

	tagMapKey   = 1<<3 | delimited
	tagMapValue = 2<<3 | delimited

	tagSeconds = 1<<3 | varint
	tagNanos   = 2<<3 | varint
)

// manyHeaders is more than a request may have: what is refused anyway takes the memory it always took, bit by bit.
const manyHeaders = 128

// decodeRequest reports whether the request was read; if not, m holds a part of it and means nothing. When all is ours the body may
// stay in it.
func decodeRequest(all []byte, ours bool, m *pb.CallRequest) bool {
	m.Reset()
	labels := run{}
	f := walk(all, 1<<(tagLabels>>3))
	for !f.odd && f.next() {
		switch f.tag {
		case tagRequest:
			m.Request = decodeHTTPRequest(&f, ours)
		case tagOperationID:
			f.text(&m.OperationId)
		case tagRepeatSafety:
			m.RepeatSafety = pb.RepeatSafety(f.number) //nolint:gosec // the low 32 bits count, as in the generated code
		case tagMaxAttempts:
			m.MaxAttempts = uint32(f.number) //nolint:gosec // likewise
		case tagAttemptTimeout:
			m.AttemptTimeout = &durationpb.Duration{}
			decodeTime(&f, &m.AttemptTimeout.Seconds, &m.AttemptTimeout.Nanos)
		case tagMaxResponseBytes:
			m.MaxResponseBytes = f.number
		case tagCriticality:
			m.Criticality = pb.Criticality(f.number) //nolint:gosec // likewise
		case tagSingleUseBody:
			m.SingleUseBody = protowire.DecodeBool(f.number)
		case tagLabels:
			labels.add(&f)
		case tagReserve:
			m.Reserve = &durationpb.Duration{}
			decodeTime(&f, &m.Reserve.Seconds, &m.Reserve.Nanos)
		case tagAllowDeferral:
			m.AllowDeferral = protowire.DecodeBool(f.number)
		case tagExpireTime:
			m.ExpireTime = &timestamppb.Timestamp{}
			decodeTime(&f, &m.ExpireTime.Seconds, &m.ExpireTime.Nanos)
		case tagReport:
			m.Report = pb.Report(f.number) //nolint:gosec // likewise
		default:
			return false
		}
	}
	if !f.odd && labels.count > 0 {
		m.Labels = decodeLabels(&f, labels)
	}
	return !f.odd
}

// decodeHTTPRequest reads the field of f, and tells f when it is odd. The URL has a string of its own, since parts of it are kept for
// long, as the name of an upstream is; the headers share one, which goes with them.
func decodeHTTPRequest(of *fields, ours bool) *pb.HttpRequest {
	f, headers := walk(of.data, 1<<(tagHeaders>>3)), run{}
	var method, url string
	var body []byte
	for !f.odd && f.next() {
		switch f.tag {
		case tagMethod:
			if method = commonMethod(f.data); method == "" {
				f.text(&method)
			}
		case tagURL:
			f.text(&url)
		case tagHeaders:
			headers.add(&f)
		case tagBody:
			body = f.data
		default:
			f.odd = true
		}
	}
	if f.odd || headers.count > manyHeaders {
		of.odd = true
		return nil
	}
	r := newRequest(headers.count)
	r.Method, r.Url = method, url
	switch {
	case len(body) == 0:
	case ours:
		r.Body = slices.Clip(body) // what stands behind it is not to be written over
	default:
		r.Body = bytes.Clone(body)
	}
	if !decodeHeaders(of.data[headers.start:headers.end], r.GetHeaders()) {
		of.odd = true
	}
	return r
}

// commonMethod is "" for one that is none of these. They are most, and need no memory.
func commonMethod(b []byte) string {
	for _, m := range [...]string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"} {
		if string(b) == m {
			return m
		}
	}
	return ""
}

// newRequest makes a request with so many headers, in one piece of memory when they are few.
func newRequest(headers int) *pb.HttpRequest {
	switch {
	case headers == 0:
		return &pb.HttpRequest{}
	case headers <= 2:
		r := &struct {
			request pb.HttpRequest
			list    [2]*pb.HttpHeader
			headers [2]pb.HttpHeader
		}{}
		return withHeaders(&r.request, r.list[:headers], r.headers[:])
	case headers <= 5:
		r := &struct {
			request pb.HttpRequest
			list    [5]*pb.HttpHeader
			headers [5]pb.HttpHeader
		}{}
		return withHeaders(&r.request, r.list[:headers], r.headers[:])
	case headers <= 10:
		r := &struct {
			request pb.HttpRequest
			list    [10]*pb.HttpHeader
			headers [10]pb.HttpHeader
		}{}
		return withHeaders(&r.request, r.list[:headers], r.headers[:])
	}
	return withHeaders(&pb.HttpRequest{}, make([]*pb.HttpHeader, headers), make([]pb.HttpHeader, headers))
}

func withHeaders(r *pb.HttpRequest, list []*pb.HttpHeader, headers []pb.HttpHeader) *pb.HttpRequest {
	for i := range list {
		list[i] = &headers[i]
	}
	r.Headers = list
	return r
}

// decodeHeaders reads a run of headers, which was walked before, into those that are made for them.
func decodeHeaders(all []byte, to []*pb.HttpHeader) bool {
	whole := string(all)
	headers := walk(all, 1<<(tagHeaders>>3))
	for i := 0; headers.next(); i++ {
		h := to[i]
		f, offset := walk(headers.data, 0), headers.end-len(headers.data)
		for !f.odd && f.next() {
			switch f.tag {
			case tagName:
				f.textIn(whole, offset, &h.Name)
			case tagValue:
				f.textIn(whole, offset, &h.Value)
			case tagRawValue:
				h.RawValue = append([]byte(nil), f.data...)
			default:
				return false
			}
		}
		if f.odd {
			return false
		}
	}
	return true
}

// decodeLabels reads a run of labels, and tells of when it is odd.
func decodeLabels(of *fields, r run) map[string]string {
	all := of.all[r.start:r.end]
	whole, labels := string(all), make(map[string]string, min(r.count, maxLabels))
	entries := walk(all, 1<<(tagLabels>>3))
	for entries.next() {
		f, offset := walk(entries.data, 0), entries.end-len(entries.data)
		var name, value string
		for !f.odd && f.next() {
			switch f.tag {
			case tagMapKey:
				f.textIn(whole, offset, &name)
			case tagMapValue:
				f.textIn(whole, offset, &value)
			default:
				f.odd = true
			}
		}
		if f.odd {
			of.odd = true
			return nil
		}
		labels[name] = value
	}
	return labels
}

// decodeTime reads the field of f, a Duration or a Timestamp, which are alike on the wire.
func decodeTime(of *fields, seconds *int64, nanos *int32) {
	f := walk(of.data, 0)
	for f.next() {
		switch f.tag {
		case tagSeconds:
			*seconds = int64(f.number) //nolint:gosec // two's complement
		case tagNanos:
			*nanos = int32(f.number) //nolint:gosec // likewise; the low 32 bits count
		default:
			of.odd = true
			return
		}
	}
	of.odd = of.odd || f.odd
}
