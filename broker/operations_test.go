package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/memory"
)

// as is an RPC of that identity.
func as(t testing.TB, who string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+who)
}

func TestOperationIsToldToWhoAsks(t *testing.T) {
	up := scripted(t, lose)
	r := start(t, setup{})
	first, err := r.calls.Call(within(t), post(up.url("/charges"), "op"))
	if err != nil || first.GetOutcome() != pb.Outcome_OUTCOME_UNKNOWN || first.GetReplayed() {
		t.Fatalf("%v, %v", first, err)
	}
	again, err := r.calls.Call(within(t), post(up.url("/charges"), "op"))
	if err != nil || again.GetOutcome() != pb.Outcome_OUTCOME_UNKNOWN || again.GetEffect() != pb.Effect_EFFECT_UNKNOWN || !again.GetReplayed() ||
		again.GetSends() != 0 || again.GetNext() != pb.NextStep_NEXT_STEP_RECONCILE || len(again.GetAttempts()) != 1 || again.GetPolicy() != first.GetPolicy() ||
		again.GetOperationId() != "op" || again.GetTraceId() == first.GetTraceId() {
		t.Errorf("again: %v, %v", again, err)
	}
	other := post(up.url("/charges"), "op")
	other.Request.Body = []byte("another")
	if conflict, err := r.calls.Call(within(t), other); err != nil || conflict.GetOutcome() != pb.Outcome_OUTCOME_OPERATION_CONFLICT || conflict.GetNext() != pb.NextStep_NEXT_STEP_FIX_REQUEST {
		t.Errorf("another payload: %v, %v", conflict, err)
	}
	got, err := r.calls.GetOperation(within(t), &pb.GetOperationRequest{OperationId: "op"})
	if err != nil || got.GetState() != pb.OperationState_OPERATION_STATE_UNKNOWN || got.GetOutcome() != pb.Outcome_OUTCOME_UNKNOWN || got.GetEffect() != pb.Effect_EFFECT_UNKNOWN ||
		got.GetReason() != pb.Reason_REASON_NOT_REPEATABLE || len(got.GetAttempts()) != 1 || got.GetFree() || got.GetNext() != pb.NextStep_NEXT_STEP_RECONCILE ||
		got.GetPolicy() != first.GetPolicy() || got.GetCreateTime() == nil || got.GetUpdateTime() == nil || got.GetDetail() == "" {
		t.Errorf("%v, %v", got, err)
	}
	if n := len(up.requests()); n != 1 {
		t.Errorf("%d sends", n)
	}
	if load := r.server.Load(); load.Calls != 0 || load.Bytes != 0 {
		t.Errorf("still taken: %+v", load)
	}
}

// While it runs nothing is claimed of its effect: it may have happened.
func TestRunningOperationClaimsNothing(t *testing.T) {
	ended := make(chan struct{})
	up := scripted(t, hold(ended))
	r := start(t, setup{})
	ctx, cancel := context.WithCancel(within(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.calls.Call(ctx, post(up.url("/charges"), "op"))
	}()
	<-up.arrived
	got, err := r.calls.GetOperation(within(t), &pb.GetOperationRequest{OperationId: "op"})
	if err != nil || got.GetState() != pb.OperationState_OPERATION_STATE_RUNNING || got.GetOutcome() != pb.Outcome_OUTCOME_UNSPECIFIED ||
		got.GetEffect() != pb.Effect_EFFECT_UNKNOWN || got.GetNext() != pb.NextStep_NEXT_STEP_WAIT || got.GetFree() || got.GetRetrySafe() {
		t.Errorf("%v, %v", got, err)
	}
	cancel()
	<-done
}

func TestOperationsAreTheCallersOwn(t *testing.T) {
	up := scripted(t, lose)
	r := start(t, setup{identities: known(map[string][]Role{"ann": {RoleCaller}, "bob": {RoleCaller}, "ops": {RoleOperator}})})
	for _, who := range []string{"ann", "bob"} {
		if resp, err := r.calls.Call(as(t, who), post(up.url("/"), "op")); err != nil || resp.GetReplayed() {
			t.Errorf("%s: %v, %v", who, resp, err)
		}
	}
	if _, err := r.calls.Call(as(t, "bob"), post(up.url("/"), "his")); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		who, caller string
		code        codes.Code
		ids         string // listed
	}{
		{"ann", "", codes.OK, "op"},
		{"ann", "ann", codes.OK, "op"},
		{"ann", "bob", codes.PermissionDenied, ""},
		{"bob", "", codes.OK, "his op"},
		{"ops", "", codes.NotFound, ""},
		{"ops", "bob", codes.OK, "his op"},
		{"ops", "nobody", codes.NotFound, ""},
	} {
		_, got := r.calls.GetOperation(as(t, tt.who), &pb.GetOperationRequest{OperationId: "op", Caller: tt.caller})
		_, reconciled := r.calls.ReconcileOperation(as(t, tt.who), &pb.ReconcileOperationRequest{OperationId: "op", Caller: tt.caller})
		page, listed := r.calls.ListOperations(as(t, tt.who), &pb.ListOperationsRequest{Caller: tt.caller})
		ids := []string{}
		for _, o := range page.GetOperations() {
			ids = append(ids, o.GetOperationId())
		}
		wantReconciled, wantListed := tt.code, tt.code
		if tt.code == codes.OK {
			wantReconciled = codes.FailedPrecondition // there is no probe
		}
		if tt.code == codes.NotFound {
			wantListed = codes.OK
		}
		if status.Code(got) != tt.code || status.Code(reconciled) != wantReconciled || status.Code(listed) != wantListed || strings.Join(ids, " ") != tt.ids {
			t.Errorf("%s about %q: %v, %v, %v, %q", tt.who, tt.caller, got, reconciled, listed, ids)
		}
		if tt.code == codes.PermissionDenied && unsent(got) != "ROLE_REQUIRED" {
			t.Errorf("%v", got)
		}
	}
}

func TestUnknownIDNamesTheLedger(t *testing.T) {
	r := start(t, setup{})
	_, err := r.calls.GetOperation(within(t), &pb.GetOperationRequest{OperationId: "never seen"[:5]})
	info := detail[errdetails.ErrorInfo](err)
	name, _ := r.memory.Identity()
	since, bad := time.Parse(time.RFC3339, info.GetMetadata()["known_since"])
	if status.Code(err) != codes.NotFound || unsent(err) != "NOT_FOUND" || info.GetMetadata()["ledger"] != name || bad != nil || time.Since(since) > time.Minute || time.Since(since) < 0 {
		t.Errorf("%v, %v", err, info)
	}
}

func TestQuestionsThatMakeNoSense(t *testing.T) {
	r := start(t, setup{})
	id := func(id string) map[string]error {
		_, got := r.calls.GetOperation(within(t), &pb.GetOperationRequest{OperationId: id})
		_, reconciled := r.calls.ReconcileOperation(within(t), &pb.ReconcileOperationRequest{OperationId: id})
		return map[string]error{"GetOperation": got, "ReconcileOperation": reconciled}
	}
	list := func(req *pb.ListOperationsRequest) map[string]error {
		_, err := r.calls.ListOperations(within(t), req)
		return map[string]error{"ListOperations": err}
	}
	for _, tt := range []struct {
		name, field string
		errs        map[string]error
	}{
		{"no id", "operation_id", id("")},
		{"a blank in it", "operation_id", id("a b")},
		{"a letter outside ASCII", "operation_id", id("ü")},
		{"too long", "operation_id", id(strings.Repeat("x", 256))},
		{"a state there is not", "state", list(&pb.ListOperationsRequest{State: 99})},
		{"a negative size", "page_size", list(&pb.ListOperationsRequest{PageSize: -1})},
		{"no token", "page_token", list(&pb.ListOperationsRequest{PageToken: "nonsense"})},
		{"a token without an id", "page_token", list(&pb.ListOperationsRequest{PageToken: pageToken("17 ")})},
		{"a token without a time", "page_token", list(&pb.ListOperationsRequest{PageToken: pageToken("x op")})},
		{"a token of another list", "page_token", list(&pb.ListOperationsRequest{PageToken: pageToken("17")})},
		{"a time there is not", "page_token", list(&pb.ListOperationsRequest{PageToken: pageToken("9223372036854775808 op")})},
	} {
		for rpc, err := range tt.errs {
			bad := detail[errdetails.BadRequest](err)
			if status.Code(err) != codes.InvalidArgument || unsent(err) != "INVALID_REQUEST" || len(bad.GetFieldViolations()) != 1 || bad.GetFieldViolations()[0].GetField() != tt.field {
				t.Errorf("%s, %s: %v", tt.name, rpc, err)
			}
		}
	}
	for _, at := range []string{"-9223372036854775808 op", "9223372036854775807 op", "0 op"} { // no page ended there, but one might
		if err := list(&pb.ListOperationsRequest{PageToken: pageToken(at)})["ListOperations"]; err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// keep puts an operation into the ledger as a call does.
func keep(t *testing.T, l *memory.Ledger, id string, at time.Time, body int) {
	t.Helper()
	rec := operation.Record{
		Key: operation.Key{Caller: localIdentity, ID: id}, Owner: "o", Fingerprint: operation.Fingerprint{1}, State: operation.StateRunning,
		CreateTime: at, UpdateTime: at, Until: at.Add(time.Hour),
	}
	rec, led, err := l.Begin(t.Context(), &rec)
	if err != nil || !led {
		t.Fatal(err)
	}
	rec.State, rec.Status, rec.Body, rec.BodyBytes = operation.StateFinished, 200, make([]byte, body), int64(body)
	rec.Outcome, rec.Effect, rec.Told = call.OutcomeSuccess, call.EffectAnswered, call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess}
	rec.BodyUntil = at.Add(time.Hour)
	if err := l.Write(t.Context(), &rec); err != nil {
		t.Fatal(err)
	}
}

func TestPagesOfOperationsSurviveWhatIsAdded(t *testing.T) {
	for _, size := range []int32{1, 20, 22, 45, 0, 5000} {
		r := start(t, setup{})
		now := time.Now()
		for i := range 45 {
			keep(t, r.memory, fmt.Sprintf("op-%02d", i), now.Add(time.Duration(i/3)*time.Second), 10) // three of each instant
		}
		req, want, pages := &pb.ListOperationsRequest{PageSize: size, State: pb.OperationState_OPERATION_STATE_FINISHED}, 44, 0
		for pages == 0 || req.GetPageToken() != "" {
			page, err := r.calls.ListOperations(within(t), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range page.GetOperations() {
				if o.GetOperationId() != fmt.Sprintf("op-%02d", want) || len(o.GetResponse().GetBody()) != 0 || !o.GetResponse().GetBodyOmitted() || o.GetResponse().GetStatus() != 200 {
					t.Fatalf("size %d: %v, want op-%02d", size, o, want)
				}
				want--
			}
			pages++
			keep(t, r.memory, fmt.Sprintf("new-%d", pages), now.Add(time.Hour), 0) // the newest of all
			req.PageToken = page.GetNextPageToken()
		}
		if full := min(max(int(size), 1), 45); want != -1 || size > 0 && pages != (45+full-1)/full || size == 0 && pages != 1 {
			t.Errorf("size %d: %d left after %d pages", size, want+1, pages)
		}
		if page, err := r.calls.ListOperations(within(t), &pb.ListOperationsRequest{State: pb.OperationState_OPERATION_STATE_UNKNOWN}); err != nil || len(page.GetOperations()) != 0 {
			t.Errorf("%v, %v", page, err)
		}
	}
}

// brokenLedger is one that cannot be used.
type brokenLedger struct{ operation.Ledger }

var errBroken = errors.New("the disk is full")

func (brokenLedger) Begin(context.Context, *operation.Record) (operation.Record, bool, error) {
	return operation.Record{}, false, errBroken
}

func (brokenLedger) Operation(context.Context, operation.Key) (operation.Record, error) {
	return operation.Record{}, errBroken
}

func (brokenLedger) Operations(context.Context, string, operation.State, operation.Cursor, int) ([]operation.Record, error) {
	return nil, errBroken
}

func TestWithoutALedgerOnlyWhatNeedsItIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		setup  setup
		code   codes.Code
		reason string
		retry  bool
	}{
		{"a ledger that fails", setup{ledger: brokenLedger{}}, codes.Unavailable, "LEDGER_UNAVAILABLE", true},
		{"several brokers without a shared one", setup{replicas: true}, codes.FailedPrecondition, "LEDGER_NOT_SHARED", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := scripted(t, say(okAnswer))
			tt.setup.rules = []policy.Rule{contract()}
			r := start(t, tt.setup)
			_, called := r.calls.Call(within(t), post(up.url("/"), "op"))
			_, got := r.calls.GetOperation(within(t), &pb.GetOperationRequest{OperationId: "op"})
			_, listed := r.calls.ListOperations(within(t), &pb.ListOperationsRequest{})
			_, reconciled := r.calls.ReconcileOperation(within(t), &pb.ReconcileOperationRequest{OperationId: "op"})
			for rpc, err := range map[string]error{"Call": called, "GetOperation": got, "ListOperations": listed, "ReconcileOperation": reconciled} {
				retry := detail[errdetails.RetryInfo](err)
				if status.Code(err) != tt.code || unsent(err) != tt.reason || (retry != nil) != tt.retry || strings.Contains(err.Error(), "disk") {
					t.Errorf("%s: %v, %v", rpc, err, retry)
				}
			}
			if n := len(up.requests()); n != 0 {
				t.Errorf("%d sends", n)
			}
			for name, req := range map[string]*pb.CallRequest{"without an id": get(up.url("/")), "with an id the broker makes": post(up.url("/"), "")} {
				resp, err := r.calls.Call(within(t), req)
				if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || resp.GetSends() != 1 {
					t.Errorf("%s: %v, %v", name, resp, err)
				}
			}
			if load := r.server.Load(); load.Calls != 0 || load.Bytes != 0 {
				t.Errorf("still taken: %+v", load)
			}
		})
	}
}

// makes is an engine that says what it was told to.
type makes func() call.Final

func (m makes) Do(context.Context, *call.Call, *policy.Effective) call.Final { return m() }

func TestRoomIsGivenBackOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		final func(later chan call.Final) makes
		late  bool
	}{
		{"an answer", func(chan call.Final) makes { return func() call.Final { return call.Final{} } }, false},
		{"a panic", func(chan call.Final) makes { return func() call.Final { panic("poison") } }, false},
		{"an attempt that runs on", func(later chan call.Final) makes {
			return func() call.Final { return call.Final{Late: later} }
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCapacity(Limits{})
			room, err := c.take(100)
			if err != nil {
				t.Fatal(err)
			}
			later := make(chan call.Final, 1)
			s := &sending{engine: tt.final(later), room: room}
			var f call.Final
			func() {
				defer func() { _ = recover() }()
				defer s.giveBack()
				f = s.do(t.Context(), &call.Call{})
			}()
			if load := c.load(); (load.Calls == 1) != tt.late || (load.Bytes == 100) != tt.late {
				t.Errorf("taken: %+v", load)
			}
			if !tt.late {
				return
			}
			later <- call.Final{Outcome: call.OutcomeSuccess}
			if got := <-f.Late; got.Outcome != call.OutcomeSuccess {
				t.Errorf("%+v", got)
			}
			if load := c.load(); load.Calls != 0 || load.Bytes != 0 {
				t.Errorf("still taken: %+v", load)
			}
		})
	}
}
