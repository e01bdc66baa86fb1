// Package ballast has a process that holds little memory collect its garbage less often.
//
// A call leaves some 13 KiB of garbage, and a broker at work holds a few MiB. Go's collector starts when the heap has doubled since it
// last ended, here after a few hundred calls, several times a second. Each time it walks the heap and halves the stacks of goroutines
// that seem too large, which the next call grows again: together a fifth of all CPU (docs/benchmarks.md). What is kept here counts as
// held, so that a collection is due only after that much garbage. Nobody writes to it, so no memory stands behind it.
package ballast

// Size is how much the collector believes to be held, and by how much the resident set may grow with garbage because of it.
const Size = 32 << 20

// Ballast has its effect as long as it is reachable.
type Ballast []byte

// New gives the ballast: none where the operator has told the collector by environment what it is to do (GOGC, GOMEMLIMIT).
func New(lookupEnv func(name string) (string, bool)) Ballast {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if v, ok := lookupEnv(name); ok && v != "" {
			return nil
		}
	}
	return make(Ballast, Size)
}
