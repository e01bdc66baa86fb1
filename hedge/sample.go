package hedge

import "time"

// sample is a latency in microseconds, rounded up to four significant digits: exact up to 9.999ms, and above that too long by less than
// a thousandth. Over 9999s, which is 2h 46min, saturates. Half the memory of a sample to the microsecond, and nobody hedges by the
// last of five digits. Digits rather than bits, so that a round latency stays round.
//
// The number is 9000 · exponent + mantissa. Every exponent but 0 has the 9000 mantissas from 1000 to 9999, so that no number is left out,
// samples are in the order of their latencies, and a mantissa rounded up to 10000 is 1000 of the next exponent.
type sample uint16

const (
	mantissas  = 10_000
	mantissas0 = mantissas / 10 // the least with an exponent
	perDigit   = mantissas - mantissas0
	longest    = (mantissas - 1) * time.Second // whose exponent is 6
)

func sampleOf(latency time.Duration) sample {
	micros := (min(max(latency, 0), longest) + time.Microsecond - 1).Microseconds()
	unit, exponent := int64(1), int64(0)
	for micros > (mantissas-1)*unit {
		unit *= 10
		exponent++
	}
	return sample(perDigit*exponent + (micros+unit-1)/unit) //nolint:gosec // 63 999 at most
}

func (s sample) duration() time.Duration {
	unit, mantissa := int64(1), int64(s)
	for ; mantissa >= mantissas; mantissa -= perDigit {
		unit *= 10
	}
	return time.Duration(mantissa*unit) * time.Microsecond
}
