#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (10s), one after the other: the fuzzer takes one target of one package at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file declaration; do
  target=${declaration#func }
  echo "== $target (${file%/*})"
  go test "${file%/*}" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" -parallel "${FUZZPARALLEL:-1}" </dev/null
done
