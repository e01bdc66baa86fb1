package guard

import (
	"errors"
	"net/netip"
)

// The rules that deny. Those of an address are for operators only.
const (
	RuleScheme  = "scheme"
	RuleName    = "name"
	RulePort    = "port"
	RuleAddress = "address"
	RuleOwn     = "own_listener"
	RuleDeny    = "deny_cidrs"
	RuleSoft    = "soft_range"
	RuleHard    = "hard_range"
)

// DeniedError says that a destination is forbidden. Its text is for the caller and tells no more than the caller's own URL and
// policy do: every rule about addresses has the same text, or names could be resolved and networks mapped by asking.
type DeniedError struct {
	// Rule is the rule that denied, for logs and metrics; it must not reach the caller, since it tells addresses apart.
	Rule string

	what string
	at   netip.AddrPort
}

func denied(rule, what string, at netip.AddrPort) error {
	return &DeniedError{Rule: rule, what: what, at: at}
}

// Error is the sentence for the caller.
func (e *DeniedError) Error() string {
	switch e.Rule {
	case RuleScheme:
		return "egress rules forbid this scheme"
	case RuleName:
		return "egress rules forbid this host"
	case RulePort:
		return "egress rules forbid this port"
	default:
		return "egress rules forbid this destination"
	}
}

// Explain is the whole truth about a denial, for the operator's log and never for the caller.
func Explain(err error) string {
	e, ok := errors.AsType[*DeniedError](err)
	if !ok {
		return err.Error()
	}
	detail := e.Rule
	if e.what != "" {
		detail += ": " + e.what
	}
	if e.at.IsValid() {
		detail += ": " + e.at.String()
	}
	return detail
}
