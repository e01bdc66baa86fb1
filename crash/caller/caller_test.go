package caller

import (
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/sallyport/sallyport/crash/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is asked again without an id could be done twice, and that would be the audit's doing.
func TestAsksAgainAsTheDocumentsSay(t *testing.T) {
	const always, never, sometimes = "always", "never", "sometimes"
	ok := func(effect, next string) history.Ask {
		return history.Ask{Told: history.Told{Code: history.OK, Effect: effect, Next: next}}
	}
	for _, tt := range []struct {
		name        string
		ask         history.Ask
		id, without string
	}{
		{"an error that proves nothing", history.Ask{Told: history.Told{Code: "UNAVAILABLE"}}, always, never},
		{"an error that proves that nothing was sent", history.Ask{Told: history.Told{Code: "UNAVAILABLE", NothingSent: true}}, always, always},
		{"a request that is wrong", history.Ask{Told: history.Told{Code: history.InvalidArgument}}, never, never},
		{"nothing happened", ok("NONE", "RETRY"), always, always},
		{"it may be repeated", ok("UNKNOWN", "RETRY_SAME_ID"), always, never},
		{"it still runs", ok("UNKNOWN", "WAIT"), always, never},
		{"unknown", ok("UNKNOWN", "RECONCILE"), sometimes, never},
		{"done", ok("ANSWERED", "DONE"), sometimes, never},
	} {
		for id, want := range map[bool]string{true: tt.id, false: tt.without} {
			const many = 1000
			rnd, yes := rand.New(rand.NewPCG(1, 1)), 0
			for range many {
				if again(history.Operation{Identified: id}, tt.ask, rnd) {
					yes++
				}
			}
			got := sometimes
			switch yes {
			case 0:
				got = never
			case many:
				got = always
			}
			if got != want {
				t.Errorf("%s, id %t: %s, want %s", tt.name, id, got, want)
			}
		}
	}
}

func TestPlanIsOfItsSeed(t *testing.T) {
	routes, nameless := map[string]bool{}, 0
	for n := range 1000 {
		o := Plan(1, n)
		if again := Plan(1, n); again.Name != o.Name || again.Route.Name != o.Route.Name || again.Identified != o.Identified || again.Padding != o.Padding {
			t.Fatalf("%d: %+v, %+v", n, o, again)
		}
		routes[o.Route.Name] = true
		if !o.Identified {
			nameless++
		}
	}
	of := history.Routes()
	delete(of, "get") // of deferred calls alone
	if want := len(of); len(routes) != want || routes["get"] || nameless == 0 {
		t.Errorf("%d routes and %d without an id, want %d and some", len(routes), nameless, want)
	}
}

func TestCodesAreThoseOfTheContract(t *testing.T) {
	for c, want := range map[codes.Code]string{
		codes.OK: history.OK, codes.Canceled: "CANCELLED", codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: history.NotFound,
		codes.InvalidArgument: history.InvalidArgument, codes.Unimplemented: history.Unimplemented, codes.Unavailable: "UNAVAILABLE",
	} {
		if got := code(c); got != want {
			t.Errorf("%s: %q, want %q", c, got, want)
		}
	}
}
