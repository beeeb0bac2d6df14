#!/usr/bin/env bash
# Puts etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok into a directory.
# README.md next to this says where they come from and why.
set -euo pipefail

readonly kubernetes=v1.36.3 # the version go.mod pins; a build from a module doesn't know its own
readonly binaries=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok)

die() { printf 'build.sh: %s\n' "$*" >&2; exit 1; }

[[ $# -eq 1 && -n $1 ]] || die "usage: build.sh BINDIR"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1" || die "can't make the directory $1"
bindir=$(cd "$1" && pwd)
stamp=$bindir/.controlplane
assets=${KUBEBUILDER_ASSETS:-}
# Where both are one directory, there is nothing to take over; a link would point to itself.
if [[ -n $assets && -d $assets && $(cd "$assets" && pwd -P) == $(cd "$bindir" && pwd -P) ]]; then assets=; fi

key=$(cd "$here" && { echo "$assets"; cat build.sh go.mod go.sum etcd/main.go kwok/go.mod kwok/go.sum; } | cksum)

up_to_date() {
  [[ -f $stamp && $(<"$stamp") == "$key" ]] || return 1
  local name
  for name in "${binaries[@]}"; do [[ -x $bindir/$name ]] || return 1; done
}

up_to_date && exit 0

# The lock only saves the second of two runs its work; what makes them safe is that each builds in a directory of its own
# and renames. macOS has no flock.
if command -v flock >/dev/null; then
  exec 9>"$bindir/.controlplane.lock"
  if ! flock -n 9; then
    echo "waiting for another build of the control plane"
    flock 9
    up_to_date && exit 0
  fi
  rm -rf "$bindir"/.build.* # of a run that was killed
fi

work=$(mktemp -d "$bindir/.build.XXXXXX") || die "can't write to $bindir; is the disk full?"
ticker=
stop_ticker() {
  [[ -n $ticker ]] || return 0
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  ticker=
  printf '\r\033[K'
}
trap 'stop_ticker; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# On a terminal, a line that counts the seconds while a binary is built; elsewhere one line when it is done.
start_ticker() {
  [[ -t 1 ]] || return 0
  (
    trap - EXIT
    while printf '\r\033[K[%s] building %s: %ss' "$1" "$2" $((SECONDS - begun)); do sleep 1; done
  ) 9>&- &
  ticker=$!
}

explain() { # the log of a failed build
  if grep -qi 'no space left on device' "$1"; then
    echo "The disk is full. The build needs about 6 GB in Go's caches (go env GOCACHE GOMODCACHE) and 0.5 GB in $bindir."
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
  local name=$2 module=$here package begun=$SECONDS log=$work/log
  case $name in
    etcd) package=./etcd ;;
    kwok) module=$here/kwok package=sigs.k8s.io/kwok/cmd/kwok ;;
    *) package=k8s.io/kubernetes/cmd/$name ;;
  esac
  start_ticker "$1/${#binaries[@]}" "$name"
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
  mv -f "$work/$name" "$bindir/$name" || die "can't write $bindir/$name; is the disk full?"
  echo "[$1/${#binaries[@]}] built $name in $((SECONDS - begun))s"
}

take() { # number, binary: from KUBEBUILDER_ASSETS
  ln -s "$(cd "$assets" && pwd)/$2" "$work/$2"
  mv -f "$work/$2" "$bindir/$2"
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
printf '%s\n' "$key" >"$work/stamp"
mv -f "$work/stamp" "$stamp"
