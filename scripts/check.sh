#!/usr/bin/env bash
# House rules that no linter knows. Each is a search that must find nothing, with its reason beside it.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=0

# Go files of our own, committed or not. gen/ is generated and third_party/ is not ours.
ours() { git ls-files -co --exclude-standard -- "$@" ':!gen' ':!third_party' | while read -r f; do [[ -f $f ]] && printf '%s\n' "$f"; done; }
go_files=$(ours '*.go')
code_files=$(grep -v '_test\.go$' <<<"$go_files")
test_files=$(grep '_test\.go$' <<<"$go_files")

# forbid REASON PATTERN FILES: no line of the files may match, comment lines aside.
forbid() {
  local reason=$1 pattern=$2 files=$3 hits
  [[ -n $files ]] || return 0
  hits=$(xargs -r grep -nHE -- "$pattern" <<<"$files" | grep -vE '^[^:]+:[0-9]+:[[:space:]]*//')
  if [[ -n $hits ]]; then
    printf '%s\n%s\n\n' "$reason" "$hits" >&2
    failed=1
  fi
}

# Rings 0 to 3 as the table in docs/architecture.md gives them: "| 1 | `breaker` | …".
inner=$(sed -nE 's/^\| [0-3] \| `([^`]+)` \|.*/\1/p' docs/architecture.md)
inner_files=$(while read -r dir; do grep -E "^$dir/[^/]+$" <<<"$code_files"; done <<<"$inner" |
  # run.go acts on what the plan decided, and flights.go where attempts run beside each other. h1 and h2 must turn
  # the limits of an answer into the instants at which a wait in progress ends; nothing is decided by it.
  grep -vE '^(engine/(run|flights)|egress/h1/deadline|egress/h2/wait)\.go$')

forbid 'rings 0-3 read no clock and roll no dice: they take now and rnd, so that time in a test is exact (the exceptions stand in scripts/check.sh)' \
  '\btime\.(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTimer|NewTicker)\b|\bcontext\.(Background|TODO)\(|"math/rand(/v2)?"|"crypto/rand"' "$inner_files"

forbid 'time.After cannot be stopped: use time.NewTimer and Stop' '\btime\.After\(' "$go_files"

# A sleep in a bubble takes no time and is exact; any other makes a test slow and still not sure.
sleepers=$(xargs -r grep -LE '"testing/synctest"' <<<"$test_files")
forbid 'a test sleeps in a synctest bubble only: wait for a channel instead' '\btime\.Sleep\(' "$sleepers"
forbid 'nothing sleeps: wait for a timer and the context' '\btime\.Sleep\(' "$(grep -vE '^(cmd|bench|examples)/' <<<"$code_files")"

forbid 'only the command line prints: a library returns values and logs through the logger it was given' \
  '\bfmt\.Print(f|ln)?\(' "$(grep -vE '^(cmd|bench|examples|clients)/' <<<"$code_files")"

forbid 'the default client re-sends by itself, follows redirects, shares state with the whole process and has no time-out' \
  '\bhttp\.(DefaultClient|DefaultTransport|Get|Post|PostForm|Head)\b' "$go_files"
forbid 'a proxy named by the environment would go round the address guard: egress.proxy is the only one' 'ProxyFromEnvironment' "$go_files"

forbid 'generated types stay at the edge (broker, client, console, cmd): inside, the nouns are those of package call' \
  '"github\.com/sallyport/sallyport/gen/' "$(grep -vE '^(broker|client|clients|console|crash|cmd|bench|examples|internal/imports|internal/jaeger|internal/polyglot)/' <<<"$go_files")"

forbid 'init runs behind the reader'\''s back: do it in a constructor' '^func init\(\)' "$go_files"

# Style rule 2: past 500 lines two ideas live in one file.
long=$(xargs -r wc -l <<<"$go_files" | awk '$2 != "total" && $1 > 500 { print $2 ": " $1 " lines" }')
if [[ -n $long ]]; then
  printf 'no file over 500 lines: two ideas live there, give each its own\n%s\n\n' "$long" >&2
  failed=1
fi

# The brackets keep these patterns from finding themselves.
text_files=$(ours . | grep -vE '(^|/)(go\.sum|[^/]*\.binpb)$')
forbid 'no path of one machine: a clone stands anywhere' '(^|[^A-Za-z0-9_.])/(w[o]rk|r[o]ot|h[o]me|U[s]ers)/[A-Za-z0-9]' "$text_files"
forbid 'no registry is named in the tree: where modules come from is the setting of whoever builds' \
  'G[O]PROXY|G[O]SUMDB|proxy\.g[o]lang\.org|registry\.n[p]mjs|p[y]pi\.org' "$text_files"

exit "$failed"
