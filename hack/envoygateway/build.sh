#!/usr/bin/env bash
# Puts Envoy Gateway into a directory, from the cache or anew: envoy-gateway, and envoygateway-crds.yaml, which has its CRDs and those of the
# Gateway API's experimental channel that it was made with.
set -euo pipefail

[[ $# -eq 1 && -n $1 ]] || { echo "usage: build.sh BINDIR" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
cached envoygateway "$(cat "$here/build.sh" "$here/go.mod" "$here/go.sum")" "$1"

cd "$here"
export GOWORK=off CGO_ENABLED=0
module=github.com/envoyproxy/gateway
version=$(go list -m -f '{{.Version}}' $module) || die "can't download Envoy Gateway; check GOPROXY (go env GOPROXY)"
begun=$SECONDS
echo "building Envoy Gateway $version from its Go module: about 10 minutes, once"
start_ticker "building Envoy Gateway $version"
# One package at a time: what else runs on the machine goes on.
if ! go build -p=1 -mod=readonly -buildvcs=false -ldflags "-s -w" -o "$work/envoy-gateway" $module/cmd/envoy-gateway >"$work/log" 2>&1; then
  stop_ticker
  grep -v '^go: downloading' "$work/log" | tail -n 20 >&2
  die "building Envoy Gateway $version failed"
fi
stop_ticker
# They are a chart's templates, of which only the conditions around each file are Helm's.
crds=$(go list -m -f '{{.Dir}}' $module)/charts/gateway-crds-helm/templates
sed '/^{{.*}}$/d' "$crds/experimental-gatewayapi-crds.yaml" "$crds"/generated/*.yaml >"$work/envoygateway-crds.yaml"
echo "built Envoy Gateway $version in $((SECONDS - begun))s"
keep envoy-gateway envoygateway-crds.yaml
