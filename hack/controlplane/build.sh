#!/usr/bin/env bash
# Puts etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok into a directory, from the cache or anew.
# README.md next to this says where they come from and why.
set -euo pipefail

readonly kubernetes=v1.36.3 # the version go.mod pins; a build from a module doesn't know its own
readonly binaries=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok)

[[ $# -eq 1 && -n $1 ]] || { echo "usage: build.sh BINDIR" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
mkdir -p "$1" || die "can't make the directory $1"
assets=${KUBEBUILDER_ASSETS:-}
if [[ -n $assets && -d $assets ]]; then assets=$(cd "$assets" && pwd -P); fi
# Where both are one directory, there is nothing to take over; a link would point to itself.
if [[ -n $assets && -d $assets && $(cd "$assets" && pwd -P) == $(cd "$1" && pwd -P) ]]; then assets=; fi
cached controlplane "$(cd "$here" && echo "$assets" && cat build.sh go.mod go.sum etcd/main.go kwok/go.mod kwok/go.sum)" "$1"

explain() { # the log of a failed build
  if grep -qi 'no space left on device' "$1"; then
    echo "The disk is full. The build needs about 6 GB in Go's caches (go env GOCACHE GOMODCACHE) and 0.5 GB in $cache."
  elif grep -qiE 'dial tcp|no such host|i/o timeout|TLS handshake|connection re(fused|set)|proxyconnect' "$1"; then
    echo "Go could not download a module. Check the network and GOPROXY (go env GOPROXY), then run this again; it goes on where it stopped."
  elif grep -qE 'signal: killed' "$1"; then
    echo "A compiler was killed, most likely for lack of memory: it needs up to 2 GB. GOFLAGS=-p=1 needs less."
  elif grep -qE 'requires go >=|toolchain not available' "$1"; then
    echo "This Go is too old ($(go env GOVERSION)). Install the version that hack/controlplane/go.mod names, or set GOTOOLCHAIN=auto."
  fi
}

minor=${kubernetes#v1.}
# Nothing but the Go toolchain takes part: no cgo, no workspace, no version-control stamps.
readonly ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes\
 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%%.*}\
 -X k8s.io/component-base/version.gitTreeState=clean"

build() { # number, binary
  local name=$2 module=$here package log=$work/log
  begun=$SECONDS
  case $name in
    etcd) package=./etcd ;;
    kwok) module=$here/kwok package=sigs.k8s.io/kwok/cmd/kwok ;;
    *) package=k8s.io/kubernetes/cmd/$name ;;
  esac
  start_ticker "[$1/${#binaries[@]}] building $name"
  local command=(go build -mod=readonly -buildvcs=false -trimpath -ldflags "$ldflags" -o "$work/$name" "$package")
  if ! (cd "$module" && CGO_ENABLED=0 GOWORK=off "${command[@]}") >"$log" 2>&1; then
    stop_ticker
    {
      grep -v '^go: downloading' "$log" | tail -n 20
      echo "build.sh: building $name failed: (cd $module && CGO_ENABLED=0 go build $package)"
      explain "$log"
    } >&2
    exit 1
  fi
  stop_ticker
  echo "[$1/${#binaries[@]}] built $name in $((SECONDS - begun))s"
}

take() { # number, binary: from KUBEBUILDER_ASSETS
  ln -s "$(cd "$assets" && pwd)/$2" "$work/$2"
  echo "[$1/${#binaries[@]}] took $2 from KUBEBUILDER_ASSETS"
}

# A controller manager may be older than its API server, not newer.
warn_about_version() {
  [[ -n $assets && -x $assets/kube-apiserver ]] || return 0
  local version
  version=$("$assets/kube-apiserver" --version 2>/dev/null || true)
  [[ $version == *"${kubernetes%.*}."* ]] || echo "warning: KUBEBUILDER_ASSETS has ${version:-an API server that does not start}; the tests are written for $kubernetes" >&2
}

announced=
for i in "${!binaries[@]}"; do
  name=${binaries[$i]}
  if [[ -n $assets && -x $assets/$name ]]; then
    take $((i + 1)) "$name"
    continue
  fi
  if [[ -z $announced ]]; then
    command -v go >/dev/null || die "no go in PATH. Install Go (https://go.dev/doc/install), or point KUBEBUILDER_ASSETS to a directory with: ${binaries[*]}"
    echo "building the control plane's binaries from Go modules: about 10 minutes, once"
    announced=yes
  fi
  build $((i + 1)) "$name"
done
warn_about_version
keep "${binaries[@]}"
