#!/usr/bin/env bash
# Puts Flux's source-controller, kustomize-controller and helm-controller into a directory, from the cache or anew, and their kinds as flux.yaml.
set -euo pipefail

[[ $# -eq 1 && -n $1 ]] || { echo "usage: build.sh BINDIR" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
modules=("$here" "$here/helm")
cached flux "$(cat "$here/build.sh" "${modules[@]/%//go.mod}" "${modules[@]/%//go.sum}")" "$1"

export GOWORK=off CGO_ENABLED=0
begun=$SECONDS
echo "building Flux's controllers from their Go modules: about 30 minutes, once"
start_ticker "building Flux"
for module in "${modules[@]}"; do
  # One package at a time: what else runs on the machine goes on.
  if ! go build -C "$module" -p=1 -mod=readonly -buildvcs=false -ldflags "-s -w" -o "$work/" tool >"$work/log" 2>&1; then
    stop_ticker
    grep -v '^go: downloading' "$work/log" | tail -n 20 >&2
    die "building Flux failed"
  fi
  for dir in $(go list -C "$module" -f '{{.Module.Dir}}' tool); do
    for crd in "$dir"/config/crd/bases/*.yaml; do cat "$crd"; done
  done >>"$work/flux.yaml"
done
stop_ticker
echo "built Flux in $((SECONDS - begun))s"
keep source-controller kustomize-controller helm-controller flux.yaml
