package operation

import "github.com/sallyport/sallyport/call"

// The bounds, for tests that reach them.
const (
	MostUnsaved = mostUnsaved
	MostBody    = mostBody
	Tombstone   = tombstone
	BodyLife    = bodyLife
	UnknownLife = unknownLife
)

// ValueAt reads a value of a JSON document.
func ValueAt(document []byte, pointer string) (string, error) { return valueAt(document, pointer) }

// Judge reads the answer to a probe.
func (p *Probe) Judge(r *call.Response) Verdict { return p.judge(r) }

// Stored is the form in which what no ledger reads of a final is kept.
func Stored(f *call.Final, policy string, probes []Finding) ([]byte, error) {
	d := detailsOf(f, policy, probes)
	return d.encode()
}
