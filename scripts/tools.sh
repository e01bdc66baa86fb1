#!/usr/bin/env bash
# Installs the pinned tools into bin/tools, but only when their pins or the Go version changed: a cold build of them takes
# minutes, and make asks for them every time.
#
# usage: scripts/tools.sh [proto] [lint] [jaeger]    (all when none is named)
set -euo pipefail
cd "$(dirname "$0")/.."

# The tools stand in modules of their own, so that what they need never enters the product's go.mod. Several of them, because
# buf asks for a later protobuf than the one our generator must match, and Jaeger for earlier ones of nearly everything.
install_module() {
  local module=$1 stamp want
  stamp="bin/tools/.${module//\//-}.stamp"
  want="$(go env GOVERSION) $(cat "$module/go.mod" "$module/go.sum" | cksum)"
  if [[ -f $stamp && "$(cat "$stamp")" == "$want" ]]; then
    return
  fi
  echo "installing the tools of $module/go.mod (minutes, the first time)"
  mkdir -p bin/tools
  local target=$PWD/bin/tools
  (cd "$module" && GOBIN=$target CGO_ENABLED=0 go install tool)
  printf '%s\n' "$want" >"$stamp"
}

[[ $# -gt 0 ]] || set -- proto lint jaeger
for group in "$@"; do
  case $group in
    proto)
      install_module tools
      install_module tools/buf
      ;;
    lint) install_module tools/lint ;;
    jaeger) install_module tools/jaeger ;;
    *)
      echo "unknown group of tools: $group (proto, lint, jaeger)" >&2
      exit 2
      ;;
  esac
done
