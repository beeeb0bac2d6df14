#!/usr/bin/env bash
# Puts a Helm into a directory, from the cache or anew: helm, which is Helm 4, or helm3.
set -euo pipefail

[[ $# -eq 2 && -n $1 && $2 =~ ^helm3?$ ]] || { echo "usage: build.sh BINDIR helm|helm3" >&2; exit 1; }
readonly name=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
major=v4 module=$here
if [[ $name == helm3 ]]; then major=v3 module=$here/v3; fi
cached "$name" "$(cat "$here/build.sh" "$module/go.mod" "$module/go.sum")" "$1"

cd "$module"
export GOWORK=off CGO_ENABLED=0
version=$(go list -m -f '{{.Version}}' "helm.sh/helm/$major") || die "can't download Helm; check GOPROXY (go env GOPROXY)"
minor=$(go list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
# A build from a module doesn't know its version, and Helm 3 not the Kubernetes that it renders for.
ldflags="-s -w -X helm.sh/helm/$major/internal/version.version=$version"
for package in chartutil lint/rules; do
  ldflags+=" -X helm.sh/helm/v3/pkg/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$package.k8sVersionMinor=$minor"
done
begun=$SECONDS
echo "building Helm $version from its Go module: about 10 minutes, once"
start_ticker "building Helm $version"
# One package at a time: what else runs on the machine goes on. Without -trimpath, so that packages are those that the chart's tests compile.
if ! go build -p=1 -mod=readonly -buildvcs=false -ldflags "$ldflags" -o "$work/$name" "helm.sh/helm/$major/cmd/helm" >"$work/log" 2>&1; then
  stop_ticker
  grep -v '^go: downloading' "$work/log" | tail -n 20 >&2
  die "building Helm $version failed"
fi
stop_ticker
echo "built Helm $version in $((SECONDS - begun))s"
keep "$name"
