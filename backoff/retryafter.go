package backoff

import (
	"math"
	"strings"
	"time"
)

// RetryAfter reads all Retry-After fields of one answer (RFC 9110 §10.2.3) and reports the longest delay asked for, or false when
// none is readable. A malformed or negative value is as if it were absent; a date in the past is a delay of 0, which is not the
// same as no field; what no duration can hold is the longest duration.
//
// A date is compared with the answer's own Date (date, "" when there was none): both come from the server's clock, so its error
// cancels out. An unreadable date falls back to now.
func RetryAfter(values []string, date string, now time.Time) (time.Duration, bool) {
	var longest time.Duration // never below 0: a past date asks for no wait
	found := false
	for _, value := range values {
		value = strings.Trim(value, " \t")
		delay, ok := delaySeconds(value)
		if !ok {
			delay, ok = delayUntil(value, date, now)
		}
		if ok {
			found = true
			longest = max(longest, delay)
		}
	}
	return longest, found
}

// delaySeconds reads delay-seconds: 1*DIGIT, leading zeros included, no sign, no fraction, no unit.
func delaySeconds(s string) (time.Duration, bool) {
	const most = math.MaxInt64 / int64(time.Second)
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if !digit(s[i]) {
			return 0, false
		}
		// Beyond most, n only has to stay there: the rest of the value is still checked for being digits.
		n = min(n*10+int64(s[i]-'0'), most+1)
	}
	if n > most {
		return math.MaxInt64, true
	}
	return time.Duration(n) * time.Second, true
}

// delayUntil is negative for a date in the past.
func delayUntil(value, date string, now time.Time) (time.Duration, bool) {
	until, ok := parseHTTPDate(value, now)
	if !ok {
		return 0, false
	}
	from, ok := parseHTTPDate(strings.Trim(date, " \t"), now)
	if !ok {
		from = now
	}
	return until.Sub(from), true // Sub saturates
}
