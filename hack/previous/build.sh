#!/usr/bin/env bash
# Puts the manager of the version that is upgraded from into BINDIR/previous, from the cache or anew: e2e/operations/upgrade and e2e/node/pod run it.
# The commit in ref is that version; a release writes its own there once it is tagged.
set -euo pipefail

[[ $# -eq 1 && -n $1 ]] || { echo "usage: build.sh BINDIR" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
ref=$(<"$here/ref")
if ! git -C "$here" cat-file -e "$ref^{commit}" 2>/dev/null; then
  echo "this clone lacks commit $ref, the version that is upgraded from: upgrades won't be tested (git fetch --unshallow)"
  exit 0
fi
cached previous "$ref $(cat "$here/build.sh")" "$1/previous"

mkdir "$work/src"
git -C "$here/../.." archive "$ref" | tar -x -C "$work/src"
begun=$SECONDS
start_ticker "building the manager of $ref"
# As images have it: e2e/node/pod puts it into one.
if ! CGO_ENABLED=0 go build -C "$work/src" -buildvcs=false -trimpath -tags grpcnotrace -ldflags "-s -w -X main.version=$ref" -o "$work/manager" ./cmd >"$work/log" 2>&1; then
  stop_ticker
  tail -n 20 "$work/log" >&2
  die "building the manager of $ref failed"
fi
stop_ticker
echo "built the manager of ${ref:0:12} in $((SECONDS - begun))s"
keep manager
