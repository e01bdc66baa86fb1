package broker

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// The bounds of what a call carries beside its request.
const (
	maxMethod     = 64 // bytes; the longest registered method has 16
	maxLabels     = 16
	maxLabelName  = 128  // bytes
	maxLabelValue = 1024 // bytes
)

// decode reads a request into a call and names every field that cannot be taken. What a policy says of it comes later.
func decode(ctx context.Context, req *pb.CallRequest, caller string, now time.Time) (*call.Call, []*call.InvalidError) {
	d := decoder{}
	c := &call.Call{
		Caller:           caller,
		Arrived:          now,
		Method:           d.method(req.GetRequest()),
		Target:           d.target(req.GetRequest()),
		Headers:          d.headers(req.GetRequest()),
		Body:             req.GetRequest().GetBody(),
		OperationID:      d.operationID(req.GetOperationId()),
		RepeatSafety:     call.RepeatSafety(d.enum("repeat_safety", req.GetRepeatSafety(), pb.RepeatSafety_name)),
		Criticality:      call.Criticality(d.enum("criticality", req.GetCriticality(), pb.Criticality_name)),
		SingleUseBody:    req.GetSingleUseBody(),
		MaxAttempts:      req.GetMaxAttempts(),
		AttemptTimeout:   d.duration("attempt_timeout", req.GetAttemptTimeout()),
		MaxResponseBytes: req.GetMaxResponseBytes(),
		Reserve:          d.duration("reserve", req.GetReserve()),
		Labels:           req.GetLabels(),
	}
	d.enum("report", req.GetReport(), pb.Report_name)
	if c.Method == "TRACE" && len(c.Body) > 0 {
		d.add("request.body", "a TRACE request has no body (RFC 9110 §9.3.8); leave it empty")
	}
	d.labels(c.Labels)
	c.Deferral = d.deferral(req, now)
	if deadline, ok := ctx.Deadline(); ok {
		c.Deadline = deadline
	}
	return c, d.violations
}

// decoder collects the fields that cannot be taken.
type decoder struct {
	violations []*call.InvalidError
}

func (d *decoder) add(field, problem string) {
	d.violations = append(d.violations, &call.InvalidError{Field: field, Problem: problem})
}

func (d *decoder) method(r *pb.HttpRequest) string {
	switch m := r.GetMethod(); {
	case m == "":
		d.add("request.method", "no method; give one, for example GET")
	case !call.ValidToken(m):
		d.add("request.method", "not a token (RFC 9110 §9.1); use letters such as GET")
	case len(m) > maxMethod:
		d.add("request.method", fmt.Sprintf("longer than %d bytes; no method is", maxMethod))
	case m == "CONNECT":
		d.add("request.method", "CONNECT asks for a tunnel, not for a call; use another method")
	case m == "TRACK":
		d.add("request.method", "TRACK echoes credentials back; use another method")
	default:
		return m
	}
	return ""
}

func (d *decoder) target(r *pb.HttpRequest) call.Target {
	t, err := call.ParseTarget(r.GetUrl())
	if err != nil {
		d.violations = append(d.violations, violation(err, "request.url"))
	}
	return t
}

func (d *decoder) headers(r *pb.HttpRequest) []call.Header {
	given := r.GetHeaders()
	if len(given) == 0 {
		return nil
	}
	headers := make([]call.Header, len(given))
	for i, h := range given {
		headers[i] = call.Header{Name: h.GetName(), Value: headerValue(h)}
		if len(h.GetRawValue()) > 0 && h.GetValue() != "" {
			d.add(fmt.Sprintf("request.headers[%d].raw_value", i), "value and raw_value are both set; give one")
		}
	}
	clean, err := call.CleanHeaders(headers)
	if err != nil {
		d.violations = append(d.violations, violation(err, "request.headers"))
	}
	return clean
}

// headerValue is the field's bytes, wherever they stand.
func headerValue(h *pb.HttpHeader) string {
	if raw := h.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return h.GetValue()
}

func (d *decoder) operationID(id string) string {
	if id != "" && !validOperationID(id) {
		d.add("operation_id", "not 1 to 255 visible ASCII characters; use a UUID, for example")
		return ""
	}
	return id
}

// validOperationID: it may stand in a header field as it is.
func validOperationID(id string) bool {
	if id == "" || len(id) > 255 {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

func (d *decoder) duration(field string, v *durationpb.Duration) time.Duration {
	if v == nil {
		return 0
	}
	if err := v.CheckValid(); err != nil {
		d.add(field, "not a valid duration; give one like 1.5s")
		return 0
	}
	if v.AsDuration() < 0 {
		d.add(field, "negative; give a duration of zero or more")
		return 0
	}
	return v.AsDuration()
}

// enum refuses a number that this version does not know, instead of taking it for the default.
func (d *decoder) enum(field string, v protoreflect.Enum, known map[int32]string) int32 {
	n := int32(v.Number())
	if _, ok := known[n]; !ok {
		d.add(field, fmt.Sprintf("%d is no value of %s", n, v.Descriptor().Name()))
		return 0
	}
	return n
}

func (d *decoder) labels(labels map[string]string) {
	if len(labels) > maxLabels {
		d.add("labels", fmt.Sprintf("%d labels; give at most %d", len(labels), maxLabels))
	}
	for name, value := range labels {
		if name == "" || len(name) > maxLabelName || len(value) > maxLabelValue {
			d.add("labels", fmt.Sprintf("a name has 1 to %d bytes, a value at most %d", maxLabelName, maxLabelValue))
			return
		}
	}
}

func (d *decoder) deferral(req *pb.CallRequest, now time.Time) *call.Deferral {
	expire := req.GetExpireTime()
	if expire != nil && expire.CheckValid() != nil {
		d.add("expire_time", "not a valid time; give one in RFC 3339 form")
	}
	if !req.GetAllowDeferral() {
		return nil
	}
	if req.GetOperationId() == "" {
		d.add("operation_id", "allow_deferral needs an operation id, under which the call goes on")
	}
	switch {
	case expire == nil:
		d.add("expire_time", "allow_deferral needs the time at which the call is given up")
	case expire.CheckValid() == nil && !expire.AsTime().After(now):
		d.add("expire_time", "is in the past; give the time at which the call is given up, or leave allow_deferral out")
	}
	return &call.Deferral{Expire: expire.AsTime(), Encode: func(maxAttempts uint32) ([]byte, error) { return encodeKept(req, maxAttempts) }}
}
