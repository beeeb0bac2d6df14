#!/usr/bin/env bash
# Puts Argo CD into a directory, from the cache or anew: argocd, which is each of its programs by ARGOCD_BINARY_NAME, the kustomize that it
# runs, a Redis for it, and its CRDs.
set -euo pipefail

[[ $# -eq 1 && -n $1 ]] || { echo "usage: build.sh BINDIR" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
cached argocd "$(cat "$here/build.sh" "$here/redis/main.go" "$here/go.mod" "$here/go.sum")" "$1"

cd "$here"
export GOWORK=off CGO_ENABLED=0
module=github.com/argoproj/argo-cd/v3
version=$(go list -m -f '{{.Version}}' $module) || die "can't download Argo CD; check GOPROXY (go env GOPROXY)"
# build NAME PACKAGE: one package at a time, so that what else runs on the machine goes on.
build() {
  # A build from a module doesn't know its version.
  go build -p=1 -mod=readonly -buildvcs=false -ldflags "-s -w -X $module/common.version=${version#v}" -o "$work/$1" "$2" >>"$work/log" 2>&1
}
begun=$SECONDS
echo "building Argo CD $version from its Go module: about 10 minutes, once"
start_ticker "building Argo CD $version"
if ! { build argocd $module/cmd && build kustomize sigs.k8s.io/kustomize/kustomize/v5 && build argocd-redis ./redis; }; then
  stop_ticker
  grep -v '^go: downloading' "$work/log" | tail -n 20 >&2
  die "building Argo CD $version failed"
fi
stop_ticker
awk 'FNR == 1 {print "---"} {print}' "$(go list -m -f '{{.Dir}}' $module)"/manifests/crds/*-crd.yaml >"$work/argocd-crds.yaml"
echo "built Argo CD $version in $((SECONDS - begun))s"
keep argocd kustomize argocd-redis argocd-crds.yaml
