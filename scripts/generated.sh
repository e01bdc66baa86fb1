#!/usr/bin/env bash
# Fails when gen/ is not what the sources in proto/ give. It generates into a directory of its own, so that it says the same in
# a tree with uncommitted work.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
bin/tools/buf generate -o "$fresh"
# gen/openapi.go is written by hand: it embeds what is generated.
if ! diff -r -x openapi.go "$fresh/gen" gen; then
  echo 'gen/ is not what proto/ gives: run `make generate` and commit the result' >&2
  exit 1
fi
