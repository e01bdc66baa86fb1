package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/internal/proxytest"
)

// proxied is a policy file whose calls go through a proxy; "" is none.
func proxied(url string) string {
	return fmt.Sprintf(`policies:
  - name: policies/all
    retry: { backoff: { base: 1ms, jitter: JITTER_NONE } }
    egress: { proxy: %q, allow_cidrs: [127.0.0.0/8], any_port: true }
`, url)
}

// A start-up file names a proxy, another one, and none: each change counts from the next call on, and no tunnel outlives it.
func TestCallsGoThroughTheProxyOfThePolicyInForce(t *testing.T) {
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200, body: "hello"}}})
	one, two, environment := proxytest.Start(t, nil), proxytest.Start(t, nil), proxytest.Start(t, nil)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, environment.URL())
		t.Setenv(strings.ToLower(name), environment.URL())
	}
	s := testSettings(t)
	s.Dev, s.Policies = false, filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, s.Policies, proxied(one.URL()))
	n := startTestNode(t, s)
	c := dialNode(t, n)
	target := strings.TrimPrefix(upstream.url, "http://")
	for i, row := range []struct {
		url      string
		ones     int
		twos     int
		reloaded bool
	}{
		{one.URL(), 1, 0, false},
		{one.URL(), 1, 0, false}, // the tunnel is used again
		{two.URL(), 1, 1, true},
		{"", 1, 1, true},
		{one.URL(), 2, 1, true},
	} {
		if row.reloaded {
			replaceFile(t, s.Policies, proxied(row.url))
			reread(t, n)
		}
		resp, err := callFor(t, c, upstream.url+"/")
		if err != nil {
			t.Fatal(err)
		}
		last := resp.GetAttempts()[len(resp.GetAttempts())-1]
		if resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || last.GetRemoteAddress() != target {
			t.Errorf("call %d: %s, %s, remote address %s", i, resp.GetOutcome(), resp.GetDetail(), last.GetRemoteAddress())
		}
		if one.Connections() != row.ones || two.Connections() != row.twos {
			t.Errorf("call %d: %d and %d connections to the proxies, want %d and %d", i, one.Connections(), two.Connections(), row.ones, row.twos)
		}
	}
	if head := one.Heads()[0]; !strings.HasPrefix(head, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\nUser-Agent: sallyport/") || strings.Count(head, "\r\n") != 4 {
		t.Errorf("the proxy was asked %q", head)
	}
	if n := environment.Connections(); n != 0 {
		t.Errorf("%d connections to the proxy of the environment", n)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRefusalOfTheProxyEndsAsItCanBeMended(t *testing.T) {
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200, body: "hello"}}})
	own := func(n *node) string { return "http://" + n.http.(*net.TCPAddr).String() }
	for name, row := range map[string]struct {
		answer   int
		url      func(*node) string
		outcome  pb.Outcome
		next     pb.NextStep
		failure  pb.Failure
		attempts int
		detail   string
	}{
		"forbidden": {
			answer: 403, outcome: pb.Outcome_OUTCOME_UNREACHABLE, next: pb.NextStep_NEXT_STEP_FIX_REQUEST,
			failure: pb.Failure_FAILURE_CONNECT, attempts: 1, detail: "the egress proxy answered 403",
		},
		"no way": {
			answer: 502, outcome: pb.Outcome_OUTCOME_RETRIES_EXHAUSTED, next: pb.NextStep_NEXT_STEP_RETRY,
			failure: pb.Failure_FAILURE_CONNECT, attempts: 3, detail: "the egress proxy answered 502",
		},
		"the broker itself": {
			url: own, outcome: pb.Outcome_OUTCOME_DENIED, next: pb.NextStep_NEXT_STEP_FIX_REQUEST,
			failure: pb.Failure_FAILURE_DENIED, attempts: 1, detail: "the egress proxy: egress rules forbid this destination",
		},
		"a metadata service": {
			url:     func(*node) string { return "http://169.254.169.254:80" },
			outcome: pb.Outcome_OUTCOME_DENIED, next: pb.NextStep_NEXT_STEP_FIX_REQUEST,
			failure: pb.Failure_FAILURE_DENIED, attempts: 1, detail: "the egress proxy: egress rules forbid this destination",
		},
	} {
		t.Run(name, func(t *testing.T) {
			px := proxytest.Start(t, func(a *proxytest.Asked) { a.Say(fmt.Sprintf("HTTP/1.1 %d X\r\n\r\nhunter2", row.answer)) })
			s := testSettings(t)
			s.Dev, s.Policies = false, filepath.Join(t.TempDir(), "policies.yaml")
			replaceFile(t, s.Policies, proxied(px.URL()))
			n, log := logOf(t, s)
			if row.url != nil {
				replaceFile(t, s.Policies, proxied(row.url(n)))
				reread(t, n)
			}
			resp, err := callFor(t, dialNode(t, n), upstream.url+"/")
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetOutcome() != row.outcome || resp.GetNext() != row.next || resp.GetEffect() != pb.Effect_EFFECT_NONE || resp.GetSends() != 0 {
				t.Errorf("%s, %s, %s, %d sends", resp.GetOutcome(), resp.GetNext(), resp.GetEffect(), resp.GetSends())
			}
			if len(resp.GetAttempts()) != row.attempts {
				t.Fatalf("%d attempts, want %d", len(resp.GetAttempts()), row.attempts)
			}
			a := resp.GetAttempts()[0]
			if a.GetFailure() != row.failure || a.GetEvidence() != pb.Evidence_EVIDENCE_NOT_SENT || a.GetDetail() != row.detail {
				t.Errorf("%s, %s, %q", a.GetFailure(), a.GetEvidence(), a.GetDetail())
			}
			if err := n.stop(t.Context()); err != nil {
				t.Error(err)
			}
			if denied := row.outcome == pb.Outcome_OUTCOME_DENIED; strings.Contains(log(), "egress.proxy: ") != denied || strings.Contains(log(), "hunter2") {
				t.Errorf("the log:\n%s", log())
			}
		})
	}
	if requests, _ := upstream.saw("/"); requests != 0 {
		t.Errorf("the upstream saw %d requests", requests)
	}
}
