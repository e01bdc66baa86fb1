package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const (
	stateOpen   = pb.BreakerState_BREAKER_STATE_OPEN
	stateClosed = pb.BreakerState_BREAKER_STATE_CLOSED
	stateHalf   = pb.BreakerState_BREAKER_STATE_HALF_OPEN

	auto         = pb.BreakerMode_BREAKER_MODE_AUTO
	forcedOpen   = pb.BreakerMode_BREAKER_MODE_FORCED_OPEN
	forcedClosed = pb.BreakerMode_BREAKER_MODE_FORCED_CLOSED

	apiOrigin = "https://api.example.com:443"
)

// A life of an origin, exactly as an operator sees it.
func TestGetOriginTellsHowItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := strict()
		rule.Breaker.MinRequests = new(uint32(1000))
		o := operate(t, true, &breakerMemory{}, nil, rule)
		for range 20 {
			o.call(t, "api.example.com")
		}
		o.upstream.with(answered(500))
		o.call(t, "api.example.com")
		o.upstream.with(answered(500))
		o.call(t, "api.example.com")
		begin := time.Now()
		want := &pb.Origin{
			Origin: apiOrigin,
			Scopes: []*pb.OriginScope{{
				Policy:      "policies/strict@7",
				Breaker:     &pb.BreakerStatus{State: stateOpen, Mode: auto, Since: stamp(begin), NextProbeTime: stamp(begin.Add(time.Second)), OpenTime: durationpb.New(time.Second)},
				Budget:      &pb.BudgetStatus{Allowance: 14.4, Left: 14.4, Firsts: 22},
				Concurrency: &pb.ConcurrencyStatus{Limit: 512},
			}},
			Latency:     &pb.LatencyQuantiles{Samples: 20, P50: &durationpb.Duration{}, P95: &durationpb.Duration{}, P99: &durationpb.Duration{}},
			Transitions: []*pb.BreakerTransition{{Time: stamp(begin), From: stateClosed, To: stateOpen, Cause: "consecutive failures", OpenTime: durationpb.New(time.Second)}},
			TroubleTime: stamp(begin),
		}
		if got := o.get(t, apiOrigin); !proto.Equal(got, want) {
			t.Errorf("open:\n%v\nwant\n%v", got, want)
		}
		time.Sleep(time.Second)
		if got := o.get(t, apiOrigin).GetScopes()[0].GetBreaker(); got.GetState() != stateHalf || !got.GetSince().AsTime().Equal(begin.Add(time.Second)) || got.GetNextProbeTime() != nil {
			t.Errorf("when the open time is over: %v", got)
		}
		o.upstream.with(answered(200))
		o.call(t, "api.example.com") // the probe
		got := o.get(t, apiOrigin)
		var causes []string
		for _, m := range got.GetTransitions() {
			causes = append(causes, m.GetCause())
		}
		if b := got.GetScopes()[0].GetBreaker(); b.GetState() != stateClosed || !slices.Equal(causes, []string{"probes succeeded", "cooldown over", "consecutive failures"}) {
			t.Errorf("at the end %v after %q", b, causes)
		}
		if !got.GetTroubleTime().AsTime().Equal(begin) {
			t.Errorf("trouble at %v", got.GetTroubleTime().AsTime())
		}
	})
}

func TestGetOriginTellsHoldsAndBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := strict()
		rule.Retry.MaxAttempts = new(uint32(3))
		o := operate(t, true, &breakerMemory{}, nil, rule)
		answer := answered(429)
		answer.Response.Headers = []call.Header{{Name: "Retry-After", Value: "1"}}
		o.upstream.with(answer)
		o.call(t, "api.example.com")
		s := o.get(t, apiOrigin).GetScopes()[0]
		if holds := s.GetHolds(); len(holds) != 1 || holds[0].GetKind() != pb.HoldKind_HOLD_KIND_CREDENTIAL ||
			!holds[0].GetEndTime().AsTime().Equal(time.Now().Add(time.Second)) {
			t.Errorf("holds %v", holds)
		}
		want := &pb.BudgetStatus{Allowance: 10.2, Left: 8.2, Firsts: 1, Used: 2, GrantedTotal: 2, Callers: []*pb.CallerBudget{{Caller: "local", Used: 2}}}
		if !proto.Equal(s.GetBudget(), want) {
			t.Errorf("budget %v, want %v", s.GetBudget(), want)
		}
		answer.Status, answer.Response.Status = 503, 503
		o.upstream.with(answer)
		time.Sleep(time.Minute)
		o.call(t, "api.example.com")
		if holds := o.get(t, apiOrigin).GetScopes()[0].GetHolds(); len(holds) != 1 || holds[0].GetKind() != pb.HoldKind_HOLD_KIND_ALL {
			t.Errorf("holds %v", holds)
		}
		if _, err := o.origins.ResetOrigin(t.Context(), &pb.ResetOriginRequest{Origin: apiOrigin}); err != nil || o.get(t, apiOrigin).GetScopes()[0].GetHolds() != nil {
			t.Errorf("after a reset: %v, %v", o.get(t, apiOrigin), err)
		}
	})
}

func TestOriginIsFoundHoweverItIsSpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, nil)
		o.call(t, "api.example.com")
		for _, spelled := range []string{"https://api.example.com", "HTTPS://API.example.com:443", "https://api.example.com.", apiOrigin} {
			if got := o.get(t, spelled).GetOrigin(); got != apiOrigin {
				t.Errorf("%s: %s", spelled, got)
			}
		}
		_, err := o.origins.GetOrigin(t.Context(), &pb.GetOriginRequest{Origin: "http://api.example.com"})
		if status.Code(err) != codes.NotFound || unsent(err) != "NOT_FOUND" {
			t.Errorf("another scheme: %v", err)
		}
	})
}

func TestOriginRequestsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, nil)
		past, never := timestamppb.New(time.Now()), &timestamppb.Timestamp{Nanos: -1}
		long := strings.Repeat("x", 1025)
		set := func(origin string, mode pb.BreakerMode, reason string, end *timestamppb.Timestamp) error {
			_, err := o.origins.SetBreaker(t.Context(), &pb.SetBreakerRequest{Origin: origin, Mode: mode, Reason: reason, ExpireTime: end})
			return err
		}
		list := func(req *pb.ListOriginsRequest) error {
			_, err := o.origins.ListOrigins(t.Context(), req)
			return err
		}
		get := func(origin string) error {
			_, err := o.origins.GetOrigin(t.Context(), &pb.GetOriginRequest{Origin: origin})
			return err
		}
		reset := func(origin, reason string) error {
			_, err := o.origins.ResetOrigin(t.Context(), &pb.ResetOriginRequest{Origin: origin, Reason: reason})
			return err
		}
		watch := func(host string) error {
			w, err := o.origins.WatchOrigins(t.Context(), &pb.WatchOriginsRequest{Host: host})
			if err == nil {
				_, err = w.Recv()
			}
			return err
		}
		for _, row := range []struct {
			name   string
			err    error
			fields string
		}{
			{"no origin", get(""), "origin"},
			{"no scheme", get("api.example.com"), "origin"},
			{"a path", get(apiOrigin + "/"), "origin"},
			{"a query", get(apiOrigin + "?a"), "origin"},
			{"a user", get("https://ada@api.example.com"), "origin"},
			{"another scheme", get("ftp://api.example.com"), "origin"},
			{"reset: a long reason", reset("x", long), "origin reason"},
			{"no mode", set(apiOrigin, 0, "", nil), "mode"},
			{"a mode that is none", set(apiOrigin, 4, "", nil), "mode"},
			{"no reason", set(apiOrigin, forcedOpen, " ", nil), "reason"},
			{"a long reason", set(apiOrigin, forcedClosed, long, nil), "reason"},
			{"a reason for a terminal", set(apiOrigin, forcedClosed, "\x1b[2J", nil), "reason"},
			{"over already", set(apiOrigin, forcedOpen, "why", past), "expire_time"},
			{"no time", set(apiOrigin, forcedOpen, "why", never), "expire_time"},
			{"an end of auto", set(apiOrigin, auto, "why", timestamppb.New(time.Now().Add(time.Hour))), "expire_time"},
			{"all at once", set("", 0, long, past), "origin mode reason expire_time"},
			{"no state", list(&pb.ListOriginsRequest{State: 4}), "state"},
			{"a negative state", list(&pb.ListOriginsRequest{State: -1}), "state"},
			{"a negative page", list(&pb.ListOriginsRequest{PageSize: -1}), "page_size"},
			{"no host", list(&pb.ListOriginsRequest{Host: "*x.example.com"}), "host"},
			{"no token", list(&pb.ListOriginsRequest{PageToken: "x"}), "page_token"},
			{"a short token", list(&pb.ListOriginsRequest{PageToken: "AAAA"}), "page_token"},
			{"a watch of no host", watch("https://api.example.com"), "host"},
		} {
			var fields []string
			for _, v := range detail[errdetails.BadRequest](row.err).GetFieldViolations() {
				fields = append(fields, v.GetField())
				if v.GetDescription() == "" {
					t.Errorf("%s: nothing said of %s", row.name, v.GetField())
				}
			}
			if status.Code(row.err) != codes.InvalidArgument || unsent(row.err) != "INVALID_REQUEST" || strings.Join(fields, " ") != row.fields {
				t.Errorf("%s: %q, %v", row.name, fields, row.err)
			}
		}
		if n := len(o.store.audit()); n != 0 {
			t.Errorf("%d records of what was refused", n)
		}
		if err := set(apiOrigin, forcedOpen, strings.Repeat("x", 1024), timestamppb.New(time.Now().Add(1))); err != nil {
			t.Errorf("just right: %v", err)
		}
	})
}

// The emergency stop of one host: before its first call, for everybody, and over a restart.
func TestSetBreakerActsAtOnceAndSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &breakerMemory{}
		begin := time.Now()
		end := begin.Add(time.Hour)
		forced := &pb.ForcedBreaker{Mode: forcedOpen, Principal: "local", Reason: "drill", CreateTime: stamp(begin), ExpireTime: stamp(end)}
		o := operate(t, true, store, nil)
		if got, want := o.set(t, "https://API.example.com", forcedOpen, end), (&pb.Origin{Origin: apiOrigin, Forced: forced}); !proto.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got := o.call(t, "api.example.com"); got.GetOutcome() != pb.Outcome_OUTCOME_BREAKER_OPEN || got.GetSends() != 0 {
			t.Errorf("%v", got)
		}
		o = operate(t, true, store, nil) // another process
		if names, _ := o.names(t, &pb.ListOriginsRequest{State: stateOpen}); !slices.Equal(names, []string{apiOrigin}) {
			t.Errorf("listed after a restart: %v", names)
		}
		if got := o.call(t, "api.example.com"); got.GetOutcome() != pb.Outcome_OUTCOME_BREAKER_OPEN {
			t.Errorf("after a restart: %v", got)
		}
		if got := o.get(t, apiOrigin); !proto.Equal(got.GetForced(), forced) || got.GetScopes()[0].GetBreaker().GetMode() != forcedOpen {
			t.Errorf("after a restart: %v", got)
		}
		time.Sleep(time.Until(end))
		synctest.Wait()
		if got := o.call(t, "api.example.com"); got.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
			t.Errorf("at its end: %v", got)
		}
		got := o.get(t, apiOrigin)
		if m := got.GetTransitions()[0]; got.GetForced() != nil || m.GetCause() != "forced" || m.GetFrom() != stateOpen || m.GetTo() != stateClosed || !m.GetTime().AsTime().Equal(end) {
			t.Errorf("at its end: %v", got)
		}
		if records := store.audit(); len(records) != 1 || records[0].Principal != "local" || records[0].Action != "SetBreaker" || records[0].Target != apiOrigin || records[0].Reason != "drill" {
			t.Errorf("audit %+v", records)
		}
	})
}

func TestSetBreakerBackToAuto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, nil)
		if got := o.set(t, apiOrigin, auto, time.Time{}); !proto.Equal(got, &pb.Origin{Origin: apiOrigin}) {
			t.Errorf("of an origin that nobody called: %v", got)
		}
		o.set(t, apiOrigin, forcedClosed, time.Time{})
		if names, _ := o.names(t, &pb.ListOriginsRequest{State: stateClosed}); len(names) != 1 {
			t.Errorf("forced closed, listed %v", names)
		}
		o.set(t, apiOrigin, auto, time.Time{})
		if _, err := o.origins.GetOrigin(t.Context(), &pb.GetOriginRequest{Origin: apiOrigin}); status.Code(err) != codes.NotFound {
			t.Errorf("back to auto, and nobody called it: %v", err)
		}
	})
}

func TestStoreThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, nil)
		o.call(t, "api.example.com")
		o.store.fail(errors.New("disk full"))
		_, setErr := o.origins.SetBreaker(t.Context(), &pb.SetBreakerRequest{Origin: apiOrigin, Mode: forcedOpen, Reason: "why"})
		_, resetErr := o.origins.ResetOrigin(t.Context(), &pb.ResetOriginRequest{Origin: apiOrigin})
		for _, err := range []error{setErr, resetErr} {
			if status.Code(err) != codes.Unavailable || unsent(err) != "STORE_UNAVAILABLE" {
				t.Errorf("%v", err)
			}
		}
		if got := o.get(t, apiOrigin); got.GetForced() != nil || got.GetScopes()[0].GetBreaker().GetMode() != auto || got.GetTransitions() != nil {
			t.Errorf("something has changed: %v", got)
		}
	})
}

func TestResetOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, nil, strict())
		_, err := o.origins.ResetOrigin(t.Context(), &pb.ResetOriginRequest{Origin: apiOrigin})
		if status.Code(err) != codes.NotFound || unsent(err) != "NOT_FOUND" || len(o.store.audit()) != 0 {
			t.Errorf("nobody called it: %v", err)
		}
		o.upstream.with(answered(500))
		o.call(t, "api.example.com")
		o.call(t, "api.example.com")
		resp, err := o.origins.ResetOrigin(t.Context(), &pb.ResetOriginRequest{Origin: apiOrigin, Reason: "mended"})
		if err != nil {
			t.Fatal(err)
		}
		got := resp.GetOrigin()
		if b := got.GetScopes()[0].GetBreaker(); b.GetState() != stateClosed || b.GetConsecutiveFailures() != 0 || got.GetTransitions()[0].GetCause() != "reset" {
			t.Errorf("%v", got)
		}
		if s := got.GetScopes()[0].GetBudget(); s.GetFirsts() != 2 {
			t.Errorf("the budget went too: %v", s)
		}
		want := admin.Record{Time: time.Now().UTC().Round(0), Principal: "local", Action: "ResetOrigin", Target: apiOrigin, Reason: "mended"}
		if records := o.store.audit(); len(records) != 1 || fmt.Sprint(records[0]) != fmt.Sprint(want) {
			t.Errorf("audit %+v", records)
		}
	})
}

func TestListOriginsInOrderFilteredAndPaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, nil, strict())
		sick := func(host string) {
			o.upstream.with(answered(500))
			o.call(t, host)
			o.call(t, host)
			o.upstream.with(answered(200))
			time.Sleep(time.Millisecond)
		}
		for _, host := range []string{"c.example.com", "a.example.com", "b.example.org:8443", "example.com"} {
			o.call(t, host)
		}
		sick("y.example.com")
		sick("x.example.org")
		all := []string{
			"https://x.example.org:443", "https://y.example.com:443", // the latest trouble first
			"https://a.example.com:443", "https://b.example.org:8443", "https://c.example.com:443", "https://example.com:443",
		}
		got, next := o.names(t, &pb.ListOriginsRequest{})
		if !slices.Equal(got, all) || next != "" {
			t.Errorf("%v, then %q", got, next)
		}
		for _, row := range []struct {
			req  *pb.ListOriginsRequest
			want []string
		}{
			{&pb.ListOriginsRequest{State: stateOpen}, all[:2]},
			{&pb.ListOriginsRequest{State: stateClosed}, all[2:]},
			{&pb.ListOriginsRequest{State: stateHalf}, nil},
			{&pb.ListOriginsRequest{Host: "*.Example.com"}, []string{all[1], all[2], all[4]}},
			{&pb.ListOriginsRequest{Host: "EXAMPLE.com"}, []string{all[5]}},
			{&pb.ListOriginsRequest{Host: "*.example.com", State: stateOpen}, []string{all[1]}},
			{&pb.ListOriginsRequest{PageSize: 5000}, all},
		} {
			if got, _ := o.names(t, row.req); !slices.Equal(got, row.want) {
				t.Errorf("%v: %v, want %v", row.req, got, row.want)
			}
		}

		var paged []string
		req := &pb.ListOriginsRequest{PageSize: 2}
		for {
			names, next := o.names(t, req)
			paged = append(paged, names...)
			if next == "" {
				break
			}
			req.PageToken = next
			if len(paged) == 4 { // one comes in behind the pages read so far, one before
				o.call(t, "aa.example.com")
				o.call(t, "bb.example.com")
			}
		}
		want := []string{all[0], all[1], all[2], all[3], "https://bb.example.com:443", all[4], all[5]}
		if !slices.Equal(paged, want) {
			t.Errorf("paged %v, want %v", paged, want)
		}
		_, err := o.origins.ListOrigins(t.Context(), &pb.ListOriginsRequest{PageToken: req.GetPageToken(), State: stateOpen})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a token of another list: %v", err)
		}
	})
}

// A page has 50 origins unless asked otherwise, and fits a stock client.
func TestPagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &breakerMemory{forced: map[string]admin.Forced{}}
		for i := range 3300 {
			name := fmt.Sprintf("https://host%04d.example.com:443", i)
			store.forced[name] = admin.Forced{Origin: name, Open: true, Reason: strings.Repeat("x", 1024), Principal: strings.Repeat("y", 255), CreateTime: time.Now()}
		}
		for i := range 3300 {
			name := fmt.Sprintf("https://heavy%04d.example.org:443", i)
			store.forced[name] = admin.Forced{Origin: name, Open: true, Reason: strings.Repeat("x", 8<<10), CreateTime: time.Now()}
		}
		o := operate(t, true, store, nil)
		for _, row := range []struct {
			size int32
			host string
			want int
		}{{0, "", 50}, {7, "", 7}, {1000, "*.example.com", 1000}, {2000, "*.example.com", 1000}} {
			if names, next := o.names(t, &pb.ListOriginsRequest{PageSize: row.size, Host: row.host}); len(names) != row.want || next == "" {
				t.Errorf("page_size %d: %d", row.size, len(names))
			}
		}
		seen := map[string]bool{}
		for req := (&pb.ListOriginsRequest{PageSize: 1000, Host: "*.example.org"}); ; {
			resp, err := o.origins.ListOrigins(t.Context(), req) // of a stock client
			if err != nil {
				t.Fatal(err)
			}
			for _, origin := range resp.GetOrigins() {
				seen[origin.GetOrigin()] = true
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		if len(seen) != 3300 {
			t.Errorf("%d heavy origins in all pages", len(seen))
		}
	})
}
