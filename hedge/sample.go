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
	longest    = (mantissas - 1) * 1_000_000 * time.Microsecond
)

func sampleOf(latency time.Duration) sample {
	latency = min(max(latency, 0), longest)
	unit, exponent := time.Microsecond, 0
	for latency > (mantissas-1)*unit {
		unit *= 10
		exponent++
	}
	return sample(perDigit*exponent + int((latency+unit-1)/unit))
}

func (s sample) duration() time.Duration {
	unit, mantissa := time.Microsecond, time.Duration(s)
	for ; mantissa >= mantissas; mantissa -= perDigit {
		unit *= 10
	}
	return mantissa * unit
}
