#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (30s), one after the other: the fuzzer takes one target of one package at a time. What it finds
# it writes to testdata/fuzz of the package; commit that with the mend, and `make test` runs it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t targets < <(grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort)
for i in "${!targets[@]}"; do
  IFS=: read -r file declaration <<<"${targets[i]}"
  target=${declaration#func }
  echo "== $((i + 1))/${#targets[@]} $target (${file%/*}) for ${FUZZTIME:-30s}"
  go test "${file%/*}" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" -fuzzminimizetime 2s -parallel "${FUZZPARALLEL:-1}"
done
