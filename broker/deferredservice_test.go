package broker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/deferred"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/memory"
)

// keptCalls are a store of deferred calls.
type keptCalls interface {
	deferred.Store
	deferred.Keeper
}

// deferredService keeps calls for the broker under test.
func (r *running) deferredService(t testing.TB, kept keptCalls) *DeferredService {
	t.Helper()
	if kept == nil {
		kept = memory.NewDeferred(nil)
	}
	q := deferred.New(deferred.Config{Store: kept, Keeper: kept, Dispatcher: NewDispatcher(r.service), Log: newLog(r.log), AtOnce: 16})
	r.service.HandOverTo(q)
	q.Run()
	t.Cleanup(func() { q.Close(context.WithoutCancel(t.Context())) })
	return NewDeferredService(r.service, q)
}

// script is an upstream that answers with these statuses in turn, and then with the last one.
type script struct {
	*httptest.Server

	mu   sync.Mutex // protects the fields below
	next []int
	seen []*http.Request
}

func play(t testing.TB, statuses ...int) *script {
	t.Helper()
	s := &script{next: statuses}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		code := s.next[0]
		if len(s.next) > 1 {
			s.next = s.next[1:]
		}
		s.seen = append(s.seen, r)
		s.mu.Unlock()
		w.WriteHeader(code)
		_, _ = w.Write([]byte("answer"))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *script) keys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
	}
	return keys
}

func submission(url, method string) *pb.SubmitDeferredCallRequest {
	return &pb.SubmitDeferredCallRequest{
		Call:    &pb.CallRequest{Request: &pb.HttpRequest{Method: method, Url: url, Body: []byte("b")}},
		Backoff: durationpb.New(time.Millisecond),
	}
}

func submit(t testing.TB, ctx context.Context, r *running, req *pb.SubmitDeferredCallRequest) *pb.DeferredCall { //nolint:revive // t first, as everywhere
	t.Helper()
	resp, err := r.deferred.SubmitDeferredCall(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetDeferredCall()
}

// finished watches until a call is finished.
func finished(t testing.TB, ctx context.Context, r *running, name string) *pb.DeferredCall { //nolint:revive // t first, as everywhere
	t.Helper()
	for {
		resp, err := r.deferred.GetDeferredCall(ctx, &pb.GetDeferredCallRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if d := resp.GetDeferredCall(); d.GetState() >= pb.DeferredState_DEFERRED_STATE_COMPLETED {
			return d
		}
	}
}

func TestDeferredCallIsMadeUntilItSucceeds(t *testing.T) {
	up := play(t, 503, 503, 200)
	r := start(t, setup{deferral: true})
	accepted := submit(t, within(t), r, submission(up.URL+"/x", "PUT"))
	if accepted.GetState() != pb.DeferredState_DEFERRED_STATE_PENDING || accepted.GetMaxRetries() != 5 || accepted.GetOperationId() == "" || accepted.GetCaller() != "local" {
		t.Errorf("accepted: %v", accepted)
	}
	d := finished(t, within(t), r, accepted.GetName())
	if d.GetState() != pb.DeferredState_DEFERRED_STATE_COMPLETED || len(d.GetAttempts()) != 3 || string(d.GetResponse().GetBody()) != "answer" {
		t.Fatalf("ended: %v", d)
	}
	traces := map[string]bool{}
	for i, a := range d.GetAttempts() {
		if want := []uint32{503, 503, 200}[i]; a.GetStatus() != want || a.GetNumber() != uint32(i+1) || len(a.GetTraceId()) != 32 {
			t.Errorf("attempt %d: %v", i, a)
		}
		traces[a.GetTraceId()] = true
	}
	if len(traces) != 3 {
		t.Errorf("attempts share a trace: %v", traces)
	}
	if d.GetPossibleDuplicate() { // of a PUT that was answered nothing is unknown but what a 503 says of it
		t.Log("a repeat after a 503 counts as a possible duplicate")
	}
}

// Each of these is refused with its field, and nothing is kept.
func TestBadSubmissionNamesItsField(t *testing.T) {
	r := start(t, setup{deferral: true})
	past, soon, later := timestamppb.New(time.Now().Add(-time.Hour)), timestamppb.New(time.Now().Add(time.Hour)), timestamppb.New(time.Now().Add(2*time.Hour))
	for _, tt := range []struct {
		field  string
		change func(*pb.SubmitDeferredCallRequest)
	}{
		{"call", func(s *pb.SubmitDeferredCallRequest) { s.Call = nil }},
		{"call.request.method", func(s *pb.SubmitDeferredCallRequest) { s.Call.Request.Method = "" }},
		{"call.request.url", func(s *pb.SubmitDeferredCallRequest) { s.Call.Request.Url = "nonsense" }},
		{"call.request.method", func(s *pb.SubmitDeferredCallRequest) { s.Call.Request.Method = "G ET" }},
		{"call.request.body", func(s *pb.SubmitDeferredCallRequest) { s.Call.Request.Body = make([]byte, 3<<20+1) }},
		{"call.request.headers[0].name", func(s *pb.SubmitDeferredCallRequest) { s.Call.Request.Headers = []*pb.HttpHeader{{Name: "a b"}} }},
		{"call.operation_id", func(s *pb.SubmitDeferredCallRequest) { s.Call.OperationId = "ä" }},
		{"call.attempt_timeout", func(s *pb.SubmitDeferredCallRequest) { s.Call.AttemptTimeout = durationpb.New(-1) }},
		{"call.criticality", func(s *pb.SubmitDeferredCallRequest) { s.Call.Criticality = 99 }},
		{"call.allow_deferral", func(s *pb.SubmitDeferredCallRequest) { s.Call.AllowDeferral = true }},
		{"call.expire_time", func(s *pb.SubmitDeferredCallRequest) { s.Call.ExpireTime = soon }},
		{"call.single_use_body", func(s *pb.SubmitDeferredCallRequest) { s.Call.SingleUseBody = true }},
		{"max_retries", func(s *pb.SubmitDeferredCallRequest) { s.MaxRetries = new(uint32(1001)) }},
		{"backoff", func(s *pb.SubmitDeferredCallRequest) { s.Backoff = durationpb.New(0) }},
		{"backoff", func(s *pb.SubmitDeferredCallRequest) { s.Backoff = durationpb.New(-time.Second) }},
		{"backoff", func(s *pb.SubmitDeferredCallRequest) { s.Backoff = durationpb.New(maxRetryBackoff + 1) }},
		{"not_before_time", func(s *pb.SubmitDeferredCallRequest) { s.NotBeforeTime = past }},
		{"not_before_time", func(s *pb.SubmitDeferredCallRequest) { s.NotBeforeTime = &timestamppb.Timestamp{Nanos: -1} }},
		{"expire_time", func(s *pb.SubmitDeferredCallRequest) { s.ExpireTime = past }},
		{"expire_time", func(s *pb.SubmitDeferredCallRequest) { s.NotBeforeTime, s.ExpireTime = later, soon }},
		{"delivery", func(s *pb.SubmitDeferredCallRequest) { s.Delivery = 9 }},
		{"delivery", func(s *pb.SubmitDeferredCallRequest) {
			s.Delivery, s.Call.RepeatSafety = pb.DeliveryMode_DELIVERY_MODE_AT_LEAST_ONCE, pb.RepeatSafety_REPEAT_SAFETY_NEVER
		}},
	} {
		req := submission("http://127.0.0.1:1/", "POST")
		tt.change(req)
		_, err := r.deferred.SubmitDeferredCall(within(t), req)
		bad := detail[errdetails.BadRequest](err)
		if status.Code(err) != codes.InvalidArgument || unsent(err) != "INVALID_REQUEST" || len(bad.GetFieldViolations()) != 1 || bad.GetFieldViolations()[0].GetField() != tt.field {
			t.Errorf("%s: %v, %v", tt.field, err, bad)
		}
	}
	list, err := r.deferred.ListDeferredCalls(within(t), &pb.ListDeferredCallsRequest{})
	if err != nil || len(list.GetDeferredCalls()) != 0 || len(list.GetCounts()) != 0 {
		t.Errorf("kept all the same: %v, %v", list, err)
	}
}

func TestWhatIsAskedOfOthersNamesItsField(t *testing.T) {
	r := start(t, setup{deferral: true})
	ctx := within(t)
	get := func(name string) error {
		_, err := r.deferred.GetDeferredCall(ctx, &pb.GetDeferredCallRequest{Name: name})
		return err
	}
	list := func(req *pb.ListDeferredCallsRequest) error {
		_, err := r.deferred.ListDeferredCalls(ctx, req)
		return err
	}
	redrive := func(req *pb.RedriveDeferredCallsRequest) error {
		_, err := r.deferred.RedriveDeferredCalls(ctx, req)
		return err
	}
	purge := func(req *pb.PurgeDeferredCallsRequest) error {
		_, err := r.deferred.PurgeDeferredCalls(ctx, req)
		return err
	}
	watch := func(req *pb.WatchDeferredCallsRequest) error {
		s, err := r.deferred.WatchDeferredCalls(ctx, req)
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	for field, err := range map[string]error{
		"name":                 get("deferredCalls/"),
		"name ":                get(""),
		"state":                list(&pb.ListDeferredCallsRequest{State: 77}),
		"origin":               list(&pb.ListDeferredCallsRequest{Origin: "x"}),
		"page_size":            list(&pb.ListDeferredCallsRequest{PageSize: -1}),
		"page_token":           list(&pb.ListDeferredCallsRequest{PageToken: "x"}),
		"created_after":        list(&pb.ListDeferredCallsRequest{CreatedAfter: &timestamppb.Timestamp{Nanos: -1}}),
		"created_before":       list(&pb.ListDeferredCallsRequest{CreatedAfter: timestamppb.Now(), CreatedBefore: timestamppb.New(time.Now().Add(-time.Hour))}),
		"names":                redrive(&pb.RedriveDeferredCallsRequest{}),
		"names[1]":             redrive(&pb.RedriveDeferredCallsRequest{Names: []string{"deferredCalls/a", "b"}}),
		"max_per_second":       redrive(&pb.RedriveDeferredCallsRequest{Names: []string{"deferredCalls/a"}, MaxPerSecond: -1}),
		"names ":               purge(&pb.PurgeDeferredCallsRequest{Filter: &pb.DeferredCallFilter{}}),
		"filter":               purge(&pb.PurgeDeferredCallsRequest{Names: []string{"deferredCalls/a"}, Filter: &pb.DeferredCallFilter{State: 4}}),
		"filter.state":         watch(&pb.WatchDeferredCallsRequest{Filter: &pb.DeferredCallFilter{State: 77}}),
		"resume_token":         watch(&pb.WatchDeferredCallsRequest{ResumeToken: "x"}),
		"resume_token ":        watch(&pb.WatchDeferredCallsRequest{ResumeToken: pageToken("1000")}), // of another store
		"names  ":              purge(&pb.PurgeDeferredCallsRequest{Names: slices.Repeat([]string{"deferredCalls/a"}, 1001)}),
		"filter.created_after": purge(&pb.PurgeDeferredCallsRequest{Filter: &pb.DeferredCallFilter{CreatedAfter: &timestamppb.Timestamp{Nanos: -1}}}),
	} {
		if bad := detail[errdetails.BadRequest](err); status.Code(err) != codes.InvalidArgument || bad.GetFieldViolations()[0].GetField() != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := get("deferredCalls/none"); status.Code(err) != codes.NotFound || unsent(err) != "NOT_FOUND" {
		t.Errorf("one that never was: %v", err)
	}
}

func TestOneOperationIDIsOneDeferredCall(t *testing.T) {
	up := play(t, 200)
	r := start(t, setup{deferral: true})
	req := submission(up.URL, "POST")
	req.Call.OperationId = "o-1"
	first := submit(t, within(t), r, req)
	finished(t, within(t), r, first.GetName())
	if again := submit(t, within(t), r, req); again.GetName() != first.GetName() || again.GetState() != pb.DeferredState_DEFERRED_STATE_COMPLETED {
		t.Errorf("again: %v", again)
	}
	req.Call.Request.Body = []byte("other")
	if _, err := r.deferred.SubmitDeferredCall(within(t), req); status.Code(err) != codes.AlreadyExists || unsent(err) != "ALREADY_EXISTS" {
		t.Errorf("another payload: %v", err)
	}
	if keys := up.keys(); len(keys) != 1 || keys[0] != "" {
		t.Errorf("sent with %q: without a contract and without at least once there is no key", keys)
	}
}

func TestDeliveryModes(t *testing.T) {
	forbids := policy.Rule{Name: "policies/once", Revision: 1, File: true}
	forbids.Match.PathPrefix = "/once"
	forbids.Deferred.AtLeastOnce = new(false)
	r := start(t, setup{deferral: true, rules: []policy.Rule{forbids}})

	up := play(t, 503, 503, 201)
	req := submission(up.URL+"/sms", "POST")
	req.Delivery = pb.DeliveryMode_DELIVERY_MODE_AT_LEAST_ONCE
	d := finished(t, within(t), r, submit(t, within(t), r, req).GetName())
	if keys := up.keys(); d.GetState() != pb.DeferredState_DEFERRED_STATE_COMPLETED || len(keys) != 3 || keys[0] != d.GetOperationId() || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("at least once: %v, keys %q", d, keys)
	}
	own := play(t, 200)
	req = submission(own.URL, "POST")
	req.Delivery = pb.DeliveryMode_DELIVERY_MODE_AT_LEAST_ONCE
	req.Call.Request.Headers = []*pb.HttpHeader{{Name: "idempotency-key", Value: "mine"}}
	finished(t, within(t), r, submit(t, within(t), r, req).GetName())
	if keys := own.keys(); len(keys) != 1 || keys[0] != "mine" {
		t.Errorf("a key of the submitter: %q", keys)
	}
	for _, mode := range []pb.DeliveryMode{pb.DeliveryMode_DELIVERY_MODE_UNSPECIFIED, pb.DeliveryMode_DELIVERY_MODE_AT_MOST_ONCE} {
		up := play(t, 503)
		req := submission(up.URL, "POST")
		req.Delivery = mode
		if d := finished(t, within(t), r, submit(t, within(t), r, req).GetName()); len(up.keys()) != 1 || d.GetState() != pb.DeferredState_DEFERRED_STATE_UNKNOWN {
			t.Errorf("%v: %v", mode, d)
		}
	}
	put := play(t, 503)
	req = submission(put.URL, "PUT")
	req.Delivery = pb.DeliveryMode_DELIVERY_MODE_AT_MOST_ONCE
	if finished(t, within(t), r, submit(t, within(t), r, req).GetName()); len(put.keys()) != 1 {
		t.Errorf("a PUT that is to be made at most once was made %d times", len(put.keys()))
	}
	req = submission(up.URL+"/once", "POST")
	req.Delivery = pb.DeliveryMode_DELIVERY_MODE_AT_LEAST_ONCE
	if _, err := r.deferred.SubmitDeferredCall(within(t), req); status.Code(err) != codes.FailedPrecondition || unsent(err) != "WRONG_STATE" {
		t.Errorf("where the policy forbids it: %v", err)
	}
}

func TestContractGivesTheKeyOfADeferredCall(t *testing.T) {
	up := play(t, 503, 200)
	r := start(t, setup{deferral: true, rules: []policy.Rule{contract()}})
	req := submission(up.URL, "POST")
	req.Call.Request.Headers = []*pb.HttpHeader{{Name: "Idempotency-Key", Value: "k-1"}}
	d := finished(t, within(t), r, submit(t, within(t), r, req).GetName())
	if keys := up.keys(); d.GetOperationId() != "k-1" || !slices.Equal(keys, []string{"k-1", "k-1"}) {
		t.Errorf("%v, keys %q", d, keys)
	}
}

func TestDeferredCallsAreTheirCallersAlone(t *testing.T) {
	up := play(t, 404)
	r := start(t, setup{deferral: true, identities: known(map[string][]Role{"ann": {RoleCaller}, "ben": {RoleCaller}})})
	ann := metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer ann")
	ben := metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer ben")
	name := submit(t, ann, r, submission(up.URL, "GET")).GetName()
	finished(t, ann, r, name)
	if _, err := r.deferred.GetDeferredCall(ben, &pb.GetDeferredCallRequest{Name: name}); status.Code(err) != codes.NotFound {
		t.Errorf("get: %v", err)
	}
	if _, err := r.deferred.CancelDeferredCall(ben, &pb.CancelDeferredCallRequest{Name: name}); status.Code(err) != codes.NotFound {
		t.Errorf("cancel: %v", err)
	}
	if _, err := r.deferred.RedriveDeferredCalls(ben, &pb.RedriveDeferredCallsRequest{Names: []string{name}}); status.Code(err) != codes.NotFound {
		t.Errorf("redrive: %v", err)
	}
	if _, err := r.deferred.PurgeDeferredCalls(ben, &pb.PurgeDeferredCallsRequest{Names: []string{name}}); status.Code(err) != codes.NotFound {
		t.Errorf("purge: %v", err)
	}
	if resp, err := r.deferred.PurgeDeferredCalls(ben, &pb.PurgeDeferredCallsRequest{Filter: &pb.DeferredCallFilter{State: pb.DeferredState_DEFERRED_STATE_FAILED}}); err != nil || resp.GetCount() != 0 {
		t.Errorf("purge by filter: %v, %v", resp, err)
	}
	if resp, err := r.deferred.ListDeferredCalls(ben, &pb.ListDeferredCallsRequest{}); err != nil || len(resp.GetDeferredCalls())+len(resp.GetCounts()) != 0 {
		t.Errorf("list: %v, %v", resp, err)
	}
	if resp, err := r.deferred.ListDeferredCalls(ann, &pb.ListDeferredCallsRequest{}); err != nil || len(resp.GetDeferredCalls()) != 1 || resp.GetCounts()["DEFERRED_STATE_FAILED"] != 1 {
		t.Errorf("list of its own: %v, %v", resp, err)
	}
}

func TestDeadLettersAreListedRedrivenAndPurged(t *testing.T) {
	up := play(t, 404, 404, 404, 200)
	r := start(t, setup{deferral: true})
	var names []string
	for range 3 {
		name := submit(t, within(t), r, submission(up.URL, "GET")).GetName()
		if d := finished(t, within(t), r, name); d.GetFailure() != pb.DeferredFailure_DEFERRED_FAILURE_PERMANENT {
			t.Fatalf("%v", d)
		}
		names = append([]string{name}, names...) // the newest first
	}
	var listed []string
	for token := ""; ; {
		resp, err := r.deferred.ListDeferredCalls(within(t), &pb.ListDeferredCallsRequest{State: pb.DeferredState_DEFERRED_STATE_FAILED, Origin: up.URL, PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range resp.GetDeferredCalls() {
			if listed = append(listed, d.GetName()); d.GetCall().GetRequest().GetUrl() == "" || len(d.GetCall().GetRequest().GetBody())+len(d.GetResponse().GetBody()) != 0 || !d.GetResponse().GetBodyOmitted() {
				t.Errorf("listed: %v", d)
			}
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
		if len(listed) == 2 { // what comes meanwhile moves no page
			finished(t, within(t), r, submit(t, within(t), r, submission(up.URL, "GET")).GetName())
		}
	}
	if !slices.Equal(listed, names) {
		t.Errorf("listed %q, want %q", listed, names)
	}
	if resp, err := r.deferred.RedriveDeferredCalls(within(t), &pb.RedriveDeferredCallsRequest{Names: names[:1]}); err != nil || resp.GetCount() != 1 {
		t.Fatalf("redrive: %v, %v", resp, err)
	}
	if d := finished(t, within(t), r, names[0]); d.GetState() != pb.DeferredState_DEFERRED_STATE_COMPLETED || len(d.GetAttempts()) != 2 {
		t.Errorf("redriven: %v", d)
	}
	if _, err := r.deferred.RedriveDeferredCalls(within(t), &pb.RedriveDeferredCallsRequest{Names: names[:2]}); status.Code(err) != codes.FailedPrecondition || unsent(err) != "WRONG_STATE" {
		t.Errorf("redriving a completed one: %v", err)
	}
	if _, err := r.deferred.CancelDeferredCall(within(t), &pb.CancelDeferredCallRequest{Name: names[0]}); status.Code(err) != codes.FailedPrecondition || unsent(err) != "WRONG_STATE" {
		t.Errorf("cancelling a completed one: %v", err)
	}
	if resp, err := r.deferred.PurgeDeferredCalls(within(t), &pb.PurgeDeferredCallsRequest{Filter: &pb.DeferredCallFilter{State: pb.DeferredState_DEFERRED_STATE_FAILED}}); err != nil || resp.GetCount() != 2 {
		t.Errorf("purge: %v, %v", resp, err)
	}
	if _, err := r.deferred.GetDeferredCall(within(t), &pb.GetDeferredCallRequest{Name: names[1]}); status.Code(err) != codes.NotFound {
		t.Errorf("one that was purged: %v", err)
	}
}

func TestWatchResumesAndEndsWithTheBroker(t *testing.T) {
	up := play(t, 200)
	r := start(t, setup{deferral: true})
	finished(t, within(t), r, submit(t, within(t), r, submission(up.URL+"/0", "GET")).GetName())
	resume := ""
	for range 2 { // from now on, then from where that ended
		ctx, cancel := context.WithCancel(within(t))
		s, err := r.deferred.WatchDeferredCalls(ctx, &pb.WatchDeferredCallsRequest{ResumeToken: resume})
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan *pb.WatchDeferredCallsResponse, 1)
		go func() {
			for {
				resp, err := s.Recv()
				if err != nil {
					close(told)
					return
				}
				if resp.GetDeferredCall().GetState() == pb.DeferredState_DEFERRED_STATE_COMPLETED {
					told <- resp
				}
			}
		}()
		var first *pb.WatchDeferredCallsResponse
		for first == nil { // what came before the watch had begun is not told
			want := submit(t, within(t), r, submission(up.URL+"/1", "GET")).GetName()
			finished(t, within(t), r, want)
			select {
			case first = <-told:
			default:
			}
		}
		resume = first.GetResumeToken()
		cancel()
		for range told {
		}
	}
	missed := submit(t, within(t), r, submission(up.URL+"/2", "GET")).GetName()
	finished(t, within(t), r, missed)
	s, err := r.deferred.WatchDeferredCalls(within(t), &pb.WatchDeferredCallsRequest{ResumeToken: resume, Filter: &pb.DeferredCallFilter{State: pb.DeferredState_DEFERRED_STATE_COMPLETED}})
	if err != nil {
		t.Fatal(err)
	}
	for name := ""; name != missed; {
		resp, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		name = resp.GetDeferredCall().GetName()
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.server.Drain(within(t))
	}()
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
		t.Errorf("at the drain: %v", err)
	}
	over(t, "the drain", drained)
}
