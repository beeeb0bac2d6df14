#!/usr/bin/env bash
# Puts a kube-apiserver of another version than build.sh's into a directory, from the cache or anew, and links to all else that is in
# BINDIR: a control plane with that API server.
set -euo pipefail

[[ $# -eq 2 && -n $2 ]] || { echo "usage: apiserver.sh VERSION BINDIR, such as 1.33.13 bin" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
dir=$2/kubernetes-$1
mkdir -p "$dir"
for file in "$2"/*; do
  [[ -x $file && -f $file && ${file##*/} != kube-apiserver ]] && ln -sf "../${file##*/}" "$dir/"
done
cached "apiserver-$1" "$1 $(cat "$here/apiserver.sh")" "$dir"

# Kubernetes' own go.mod and go.sum say what it is made of, but for what is beside it in its repository: those modules have the same minor.
module=$(GOWORK=off GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@v$1") || die "can't download Kubernetes $1; check GOPROXY (go env GOPROXY)"
sources=$(sed -n 's/.*"Dir": "\(.*\)",*/\1/p' <<<"$module")
mkdir "$work/src"
cp -R "$sources/." "$work/src/"
chmod -R u+w "$work/src"
sed -E "s#=> \./staging/src/(k8s\.io/[a-z-]+)#=> \1 v0.${1#1.}#" "$sources/go.mod" >"$work/src/go.mod"

minor=${1#1.}
readonly ldflags="-s -w -X k8s.io/component-base/version.gitVersion=v$1\
 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%%.*}\
 -X k8s.io/component-base/version.gitTreeState=clean"
begun=$SECONDS
start_ticker "building kube-apiserver $1"
if ! (cd "$work/src" && CGO_ENABLED=0 GOWORK=off go build -mod=mod -buildvcs=false -trimpath -ldflags "$ldflags" -o "$work/kube-apiserver" ./cmd/kube-apiserver) >"$work/log" 2>&1; then
  stop_ticker
  grep -v '^go: downloading' "$work/log" | tail -n 20 >&2
  die "building kube-apiserver $1 failed"
fi
stop_ticker
echo "built kube-apiserver $1 in $((SECONDS - begun))s"
keep kube-apiserver
