package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sallyport/sallyport/crash/history"
	"github.com/sallyport/sallyport/crash/upstream"
)

// base makes attempts short and refusals rare: what is audited are sends.
const base = `policies:
  - name: policies/base
    match: { hosts: ["127.0.0.1"] }
    attempt: { timeout: %s }
    retry:
      max_attempts: %d
      hold: false
      backoff: { base: 0.02s, cap: 0.1s }
    budget: { window: { ratio: 10, min_per_second: 100 } }
    breaker: { consecutive_failures: 0, min_requests: 1000000 }
`

// extra is what a route has beside what follows from it.
var extra = map[string]string{
	"guarded": "    breaker: { consecutive_failures: 3, min_distinct_callers: 1, open_base: 0.1s, open_cap: 0.2s }\n",
	"hedged":  "    hedge: { delay: 0.08s, max_extra: 10 }\n",
}

// policies are those of the routes, in YAML. An attempt has that long.
func policies(attempt time.Duration) string {
	var out strings.Builder
	fmt.Fprintf(&out, base, attempt, history.MaxAttempts)
	for name, r := range history.Routes() {
		fmt.Fprintf(&out, "  - name: policies/%s\n    match: { hosts: [\"127.0.0.1\"], path_prefix: /%s }\n", name, name)
		if r.Keyed {
			fmt.Fprintf(&out, "    idempotency: { key_ttl: %gs }\n", r.KeyTTL.Seconds())
		}
		for _, status := range r.Proves {
			fmt.Fprintf(&out, "    retry: { rejection_statuses: [%d] }\n", status)
		}
		if r.Probed {
			fmt.Fprintf(&out, "    status_probe: { url_template: \"/status/{operation_id}\", applied_statuses: [200], not_applied_statuses: [404], "+
				"in_progress_statuses: [202], authoritative: true, settle: %gs }\n", settle.Seconds())
		}
		out.WriteString(extra[name])
	}
	return out.String()
}

// settle is when a request that arrived has been committed, or never will be.
const settle = upstream.LongestWork + history.AttemptTimeout
