package backoff_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/backoff"
)

var noon = time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)

func TestRetryAfterFollowsTheReferenceTable(t *testing.T) {
	var table struct {
		Now  time.Time `json:"now"`
		Rows []struct {
			N       any     `json:"n"`
			Value   *string `json:"value"`
			Result  string  `json:"result"`
			Seconds int64   `json:"seconds"`
			Date    string  `json:"date"`
		} `json:"rows"`
	}
	readTable(t, "retry_after.json", &table)
	if len(table.Rows) == 0 {
		t.Fatal("empty table")
	}
	for _, row := range table.Rows {
		t.Run(fmt.Sprint(row.N), func(t *testing.T) {
			var values []string
			if row.Value != nil {
				values = []string{*row.Value}
			}
			got, ok := backoff.RetryAfter(values, row.Date, table.Now)
			switch row.Result {
			case "invalid":
				if ok || got != 0 {
					t.Errorf("%v, %v: want it ignored", got, ok)
				}
			case "delay":
				if want := time.Duration(row.Seconds) * time.Second; !ok || got != want {
					t.Errorf("%v, %v: want %v", got, ok, want)
				}
			case "saturate":
				if !ok || got != math.MaxInt64 {
					t.Errorf("%v, %v: want the longest duration", got, ok)
				}
			default:
				t.Fatalf("unknown result %q", row.Result)
			}
		})
	}
}

func TestRetryAfterReadsWhatServersSend(t *testing.T) {
	const ignored = time.Duration(-1)
	rows := []struct {
		name   string
		values []string
		date   string
		want   time.Duration
	}{
		{"several: the longest", []string{"1", "30", "Mon, 30 Nov 2026 12:00:10 GMT"}, "", 30 * time.Second},
		{"several: the unreadable one does not count", []string{"soon", "2"}, "", 2 * time.Second},
		{"several unreadable", []string{"soon", ""}, "", ignored},
		{"a tab around", []string{"\t7\t"}, "", 7 * time.Second},
		{"a list is no value", []string{"1, 2"}, "", ignored},
		{"a plus sign", []string{"+5"}, "", ignored},
		{"digits outside ASCII", []string{"１２"}, "", ignored},
		{"the largest that fits", []string{"9223372036"}, "", 9223372036 * time.Second},
		{"one more saturates", []string{"9223372037"}, "", math.MaxInt64},
		{"2^64 does not wrap", []string{"18446744073709551616"}, "", math.MaxInt64},
		{"a thousand digits", []string{strings.Repeat("9", 1000)}, "", math.MaxInt64},
		{"a thousand zeros", []string{strings.Repeat("0", 1000) + "4"}, "", 4 * time.Second},
		{"a thousand digits and a letter", []string{strings.Repeat("9", 1000) + "s"}, "", ignored},

		{"the server's clock is ahead", []string{"Mon, 30 Nov 2026 13:00:05 GMT"}, "Mon, 30 Nov 2026 13:00:00 GMT", 5 * time.Second},
		{"the server's clock is behind", []string{"Mon, 30 Nov 2026 11:00:05 GMT"}, "Mon, 30 Nov 2026 11:00:00 GMT", 5 * time.Second},
		{"Date in another form", []string{"Mon, 30 Nov 2026 11:00:05 GMT"}, " Mon Nov 30 11:00:00 2026 ", 5 * time.Second},
		{"unreadable Date", []string{"Mon, 30 Nov 2026 12:00:05 GMT"}, "yesterday", 5 * time.Second},
		{"Date has no say in seconds", []string{"5"}, "Mon, 30 Nov 2026 11:00:00 GMT", 5 * time.Second},

		{"leap second", []string{"Mon, 30 Nov 2026 12:00:60 GMT"}, "", 60 * time.Second},
		{"second 61", []string{"Mon, 30 Nov 2026 12:00:61 GMT"}, "", ignored},
		{"hour 24", []string{"Mon, 30 Nov 2026 24:00:00 GMT"}, "", ignored},
		{"minute 60", []string{"Mon, 30 Nov 2026 12:60:00 GMT"}, "", ignored},
		{"31 November", []string{"Tue, 31 Nov 2026 12:00:00 GMT"}, "", ignored},
		{"29 February in a common year", []string{"Mon, 29 Feb 2027 12:00:00 GMT"}, "", ignored},
		{"day 0", []string{"Mon, 00 Nov 2026 12:00:00 GMT"}, "", ignored},
		{"another zone", []string{"Mon, 30 Nov 2026 12:02:00 CET"}, "", ignored},
		{"UTC is not GMT", []string{"Mon, 30 Nov 2026 12:02:00 UTC"}, "", ignored},
		{"a numeric zone", []string{"Mon, 30 Nov 2026 12:02:00 +0000"}, "", ignored},
		{"asctime with a zone", []string{"Mon Nov 30 12:02:00 GMT 2026"}, "", ignored},
		{"lower case", []string{"mon, 30 nov 2026 12:02:00 gmt"}, "", ignored},
		{"one-digit hour", []string{"Mon, 30 Nov 2026 9:02:00 GMT"}, "", ignored},
		{"a fraction", []string{"Mon, 30 Nov 2026 12:02:00.5 GMT"}, "", ignored},
		{"no such day name", []string{"Abc, 30 Nov 2026 12:02:00 GMT"}, "", ignored},
		{"no such month", []string{"Mon, 30 ovD 2026 12:02:00 GMT"}, "", ignored},
		{"a day name that does not fit", []string{"Fri, 30 Nov 2026 12:02:00 GMT"}, "", 120 * time.Second},
		{"ISO 8601", []string{"2026-11-30T12:02:00Z"}, "", ignored},
		{"only a zone", []string{"GMT"}, "", ignored},

		{"RFC 850: short day name", []string{"Mon, 30-Nov-26 12:02:00 GMT"}, "", ignored},
		{"RFC 850: four-digit year", []string{"Monday, 30-Nov-2026 12:02:00 GMT"}, "", ignored},
		{"RFC 850: fifty years ahead is ahead", []string{"Monday, 30-Nov-76 12:00:00 GMT"}, "", noon.AddDate(50, 0, 0).Sub(noon)},
		{"RFC 850: a second more is the past", []string{"Monday, 30-Nov-76 12:00:01 GMT"}, "", 0},
		{"RFC 850: last century", []string{"Sunday, 06-Nov-94 08:49:37 GMT"}, "", 0},
		{"RFC 850: 29 February of a leap year", []string{"Tuesday, 29-Feb-28 12:00:00 GMT"}, "", time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC).Sub(noon)},
		{"RFC 850: nonsense day", []string{"Monday, 99-Nov-26 12:00:00 GMT"}, "", ignored},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, ok := backoff.RetryAfter(row.values, row.date, noon)
			if row.want == ignored {
				if ok {
					t.Errorf("%v: want it ignored", got)
				}
			} else if !ok || got != row.want {
				t.Errorf("%v, %v: want %v", got, ok, row.want)
			}
		})
	}
}

// TestTwoDigitYearIsNeverMoreThanFiftyYearsAhead: RFC 9110 §5.6.7, also over the turn of a century.
func TestTwoDigitYearIsNeverMoreThanFiftyYearsAhead(t *testing.T) {
	rows := []struct {
		now, value string
		want       time.Duration
	}{
		{"2099-12-31T23:59:00Z", "Friday, 01-Jan-00 00:00:00 GMT", time.Minute},
		{"2000-01-01T00:00:00Z", "Friday, 31-Dec-99 23:59:00 GMT", 0},
		{"2060-01-01T00:00:00Z", "Friday, 29-Feb-00 00:00:00 GMT", 0}, // 2100 has no such day, 2000 had
	}
	for _, row := range rows {
		now, err := time.Parse(time.RFC3339, row.now)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := backoff.RetryAfter([]string{row.value}, "", now); !ok || got != row.want {
			t.Errorf("%s at %s: %v, %v, want %v", row.value, row.now, got, ok, row.want)
		}
	}
}

func TestAllDateFormsAgree(t *testing.T) {
	const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"
	const imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"
	rapid.Check(t, func(t *rapid.T) {
		now := noon.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "fraction")))
		// Within what a two-digit year can say.
		moment := noon.Add(time.Duration(rapid.Int64Range(-49*365*24*3600, 49*365*24*3600).Draw(t, "seconds")) * time.Second)
		want := max(moment.Sub(now), 0)
		for _, layout := range []string{imfFixdate, rfc850, time.ANSIC} {
			value := moment.Format(layout)
			if got, ok := backoff.RetryAfter([]string{value}, "", now); !ok || got != want {
				t.Fatalf("%q: %v, %v, want %v", value, got, ok, want)
			}
		}
	})
}

func TestSecondsAreExactOrSaturate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n")
		want := time.Duration(math.MaxInt64)
		if n <= math.MaxInt64/uint64(time.Second) {
			want = time.Duration(n) * time.Second
		}
		if got, ok := backoff.RetryAfter([]string{strconv.FormatUint(n, 10)}, "", noon); !ok || got != want {
			t.Fatalf("%d: %v, %v", n, got, ok)
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"0", "120", "-1", "99999999999999999999", "Mon, 30 Nov 2026 12:02:00 GMT", "Monday, 30-Nov-26 12:02:00 GMT", "Mon Nov 30 12:02:00 2026", "Tue Dec  1 12:00:00 2026", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(seed, "", int64(0))
		f.Add(seed, seed, int64(1<<40))
	}
	f.Fuzz(func(t *testing.T, value, date string, unix int64) {
		now := time.Unix(unix, 0)
		alone, okAlone := backoff.RetryAfter([]string{value}, date, now)
		if alone < 0 || (!okAlone && alone != 0) {
			t.Fatalf("%q: %v, %v", value, alone, okAlone)
		}
		// A second field can only lengthen the wait, in either place.
		first, ok1 := backoff.RetryAfter([]string{value, "3"}, date, now)
		second, ok2 := backoff.RetryAfter([]string{"3", value}, date, now)
		if !ok1 || !ok2 || first != second || first != max(alone, 3*time.Second) {
			t.Fatalf("%q: %v alone, %v and %v beside 3", value, alone, first, second)
		}
	})
}
