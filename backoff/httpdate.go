package backoff

import (
	"slices"
	"strings"
	"time"
)

// parseHTTPDate reads the three forms of RFC 9110 §5.6.7: IMF-fixdate, the obsolete RFC 850 form, and asctime. It is stricter than
// time.Parse, which takes one-digit hours, fractions of a second and any case, and more liberal in one thing: second 60 is legal.
// Every form is UTC; no other zone exists. That the name of the day fits the date is not checked: the moment is clear without it.
func parseHTTPDate(s string, now time.Time) (time.Time, bool) {
	if day, rest, ok := strings.Cut(s, ", "); ok {
		if len(day) == 3 {
			return parseIMFFixdate(day, rest)
		}
		return parseRFC850(day, rest, now)
	}
	return parseASCTime(s)
}

// parseIMFFixdate reads "Sun" and "06 Nov 1994 08:49:37 GMT".
func parseIMFFixdate(dayName, s string) (time.Time, bool) {
	if !isDayName(dayName) || len(s) != 24 || s[2] != ' ' || s[6] != ' ' || s[11] != ' ' || s[20:] != " GMT" {
		return time.Time{}, false
	}
	return assemble(number(s[7:11]), s[3:6], number(s[:2]), s[12:20])
}

// parseRFC850 reads "Sunday" and "06-Nov-94 08:49:37 GMT".
func parseRFC850(dayName, s string, now time.Time) (time.Time, bool) {
	if !isLongDayName(dayName) || len(s) != 22 || s[2] != '-' || s[6] != '-' || s[9] != ' ' || s[18:] != " GMT" {
		return time.Time{}, false
	}
	short := number(s[7:9])
	if short < 0 {
		return time.Time{}, false
	}
	// RFC 9110 §5.6.7: what appears to be more than 50 years in the future is the most recent past year with the same last two
	// digits. So: the latest year in which the date exists (29 February) and is not more than 50 years ahead. Three centuries
	// are enough: the first may lie ahead, the second may lack the day.
	limit := now.UTC().AddDate(50, 0, 0)
	year := limit.Year() - limit.Year()%100 + short
	for range 3 {
		if t, ok := assemble(year, s[3:6], number(s[:2]), s[10:18]); ok && !t.After(limit) {
			return t, true
		}
		year -= 100
	}
	return time.Time{}, false
}

// parseASCTime reads "Sun Nov  6 08:49:37 1994".
func parseASCTime(s string) (time.Time, bool) {
	if len(s) != 24 || !isDayName(s[:3]) || s[3] != ' ' || s[7] != ' ' || s[10] != ' ' || s[19] != ' ' {
		return time.Time{}, false
	}
	day := s[8:10]
	if day[0] == ' ' {
		day = day[1:]
	}
	return assemble(number(s[20:24]), s[4:7], number(day), s[11:19])
}

// assemble checks the parts, clock being "08:49:37"; a negative number is one that was none.
func assemble(year int, monthName string, day int, clock string) (time.Time, bool) {
	month := monthNumber(monthName)
	if year < 0 || month == 0 || day < 1 || clock[2] != ':' || clock[5] != ':' {
		return time.Time{}, false
	}
	hour, minute, second := number(clock[:2]), number(clock[3:5]), number(clock[6:])
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 {
		return time.Time{}, false
	}
	// time.Date turns 31 November into 1 December: a day that does not exist is malformed.
	if date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC); date.Day() != day {
		return time.Time{}, false
	}
	return time.Date(year, month, day, hour, minute, second, 0, time.UTC), true
}

// number reads a run of digits, -1 for anything else.
func number(s string) int {
	n := 0
	for i := range len(s) {
		if !digit(s[i]) {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}

func digit(c byte) bool { return c-'0' < 10 }

// monthNumber is 0 for no month. HTTP-date is case-sensitive.
func monthNumber(name string) time.Month {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	for i := 0; i < len(names); i += 3 {
		if names[i:i+3] == name {
			return time.Month(i/3 + 1)
		}
	}
	return 0
}

func isDayName(name string) bool {
	return slices.Contains([]string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}, name)
}

func isLongDayName(name string) bool {
	return slices.Contains([]string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}, name)
}
