#!/usr/bin/env bash
# Puts Flux's source-controller and kustomize-controller into a directory, from the cache or anew, and their kinds as flux.yaml.
set -euo pipefail

[[ $# -eq 1 && -n $1 ]] || { echo "usage: build.sh BINDIR" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
cached flux "$(cat "$here/build.sh" "$here/go.mod" "$here/go.sum")" "$1"

cd "$here"
export GOWORK=off CGO_ENABLED=0
controllers=(source-controller kustomize-controller)
modules=("${controllers[@]/#/github.com/fluxcd/}")
begun=$SECONDS
echo "building ${controllers[*]} from their Go modules: about 20 minutes, once"
start_ticker "building Flux"
# One package at a time: what else runs on the machine goes on.
if ! go build -p=1 -mod=readonly -buildvcs=false -ldflags "-s -w" -o "$work/" "${modules[@]}" >"$work/log" 2>&1; then
  stop_ticker
  grep -v '^go: downloading' "$work/log" | tail -n 20 >&2
  die "building Flux failed"
fi
stop_ticker
for dir in $(go list -m -f '{{.Dir}}' "${modules[@]}"); do
  for crd in "$dir"/config/crd/bases/*.yaml; do cat "$crd"; done
done >"$work/flux.yaml"
echo "built Flux in $((SECONDS - begun))s"
keep "${controllers[@]}" flux.yaml
