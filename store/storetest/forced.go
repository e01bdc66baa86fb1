package storetest

import (
	"slices"
	"testing"

	"github.com/sallyport/sallyport/admin"
)

func forced() []promise {
	return []promise{
		{"a breaker is forced, forced otherwise, and let go", lifeOfAForcedBreaker},
		{"forced breakers are listed by origin", forcedByOrigin},
	}
}

const origin = "https://api.example.com:443"

func force(origin string, open bool) *admin.Forced {
	return &admin.Forced{
		Origin: origin, Open: open, Principal: "opérateur\x00", Reason: "deploy 😀 of\n" + origin, CreateTime: at(1), ExpireTime: at(2),
	}
}

// forcedUTC is f as a store gives it back.
func forcedUTC(f admin.Forced) admin.Forced {
	f.CreateTime, f.ExpireTime = f.CreateTime.UTC(), f.ExpireTime.UTC()
	return f
}

func lifeOfAForcedBreaker(t *testing.T, s admin.Store) {
	open, closed := force(origin, true), force(origin, false)
	closed.ExpireTime = admin.Forced{}.ExpireTime
	closed.Principal, closed.Reason = "", ""
	for i, f := range []*admin.Forced{nil, open, open, closed, nil, nil, open} {
		record := told("operator", origin)
		record.Action = "SetBreaker"
		if err := s.WriteForced(t.Context(), origin, f, record); err != nil {
			t.Fatal(err)
		}
		got := read(t, s)
		var want []admin.Forced
		if f != nil {
			want = []admin.Forced{forcedUTC(*f)}
		}
		equal(t, "forced", got.Forced, want)
		if len(got.Records) != i+1 {
			t.Errorf("%d records of %d writes", len(got.Records), i+1)
		}
	}
}

func forcedByOrigin(t *testing.T, s admin.Store) {
	origins := []string{"https://b.example.com:443", origin, "http://a.example.com:80", "http://[::1]:8080", "http://a.example.com:443"}
	for i, o := range origins {
		if err := s.WriteForced(t.Context(), o, force(o, i%2 == 0), told("operator", o)); err != nil {
			t.Fatal(err)
		}
	}
	// The origin that is written is the one asked for.
	if err := s.WriteForced(t.Context(), origin, force("http://other.example.com:80", false), told("operator", origin)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range read(t, s).Forced {
		got = append(got, f.Origin)
	}
	slices.Sort(origins)
	equal(t, "origins", got, origins)
	if err := s.WriteForced(t.Context(), origins[2], nil, told("operator", origins[2])); err != nil {
		t.Fatal(err)
	}
	if n := len(read(t, s).Forced); n != len(origins)-1 {
		t.Errorf("%d of %d are left, one was let go", n, len(origins))
	}
}
