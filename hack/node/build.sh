#!/usr/bin/env bash
# Puts a kubelet and containerd, with its shim, ctr and runc, into a directory, for the tests of e2e/node.
# README.md next to this says where they come from. Where no real node can run, it says why and succeeds: the tests are
# skipped then, and say the same.
set -euo pipefail

readonly runtime=(containerd containerd-shim-runc-v2 ctr runc)

give_up() { printf 'no real node here: %s; the tests that need one will be skipped\n' "$*"; exit 0; }

[[ $# -eq 1 && -n $1 ]] || { echo "usage: build.sh BINDIR" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
module=$here/../controlplane
. "$here/../cache.sh"
[[ $(uname -s) == Linux ]] || give_up "a kubelet needs Linux, not $(uname -s)"
[[ $(id -u) -eq 0 ]] || give_up "a kubelet needs root"
# A machine's own containerd may come, go and move.
runtimes=$(PATH=$PATH:/usr/sbin:/sbin; for name in "${runtime[@]}"; do command -v "$name" || true; done)
cached node "$runtimes $(cat "$here/build.sh" "$module/go.mod" "$module/go.sum")" "$1"

# A machine that has containerd lends it; it isn't started as its service is, and its data aren't touched.
link_runtime() {
  local name path
  for name in "${runtime[@]}"; do
    path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$name") || return 1
    ln -s "$path" "$work/$name"
  done
  echo "took containerd from $(dirname "$(readlink "$work/containerd")")"
}

# Debian's packages are unpacked, not installed: an installation would start a service and stay. Package lists are
# fetched only where there are none.
unpack_runtime() {
  rm -f "${runtime[@]/#/$work/}"
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    give_up "there is no containerd, and without apt-get no package to take it from; install containerd and runc"
  # apt drops root for downloads where it can; the directory is root's, and the packages are signed either way.
  local download=(apt-get -q -o APT::Sandbox::User=root download containerd runc)
  if ! (cd "$work" && "${download[@]}") >"$work/log" 2>&1; then
    { apt-get -q update && (cd "$work" && "${download[@]}"); } >"$work/log" 2>&1 || {
      tail -n 5 "$work/log"
      give_up "there is no containerd, and apt-get can't download the packages containerd and runc"
    }
  fi
  local package name
  for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/unpacked"; done
  for name in "${runtime[@]}"; do
    mv "$(find "$work/unpacked" -type f -name "$name" -perm -100 | head -n 1)" "$work/$name" || die "$name isn't in the packages containerd and runc"
  done
  "$work/runc" --version >/dev/null || give_up "runc of the package doesn't run here"
  echo "unpacked $("$work/containerd" --version | cut -d' ' -f1,3) and runc from the system's packages"
}

build_kubelet() {
  command -v go >/dev/null || die "no go in PATH. Install Go (https://go.dev/doc/install)"
  local version minor log=$work/log
  version=$(cd "$module" && GOWORK=off go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)
  minor=${version#v1.}
  echo "building the kubelet $version from Go modules: half a minute where the control plane was built before, else about 8 minutes, once"
  begun=$SECONDS
  start_ticker "building the kubelet"
  # The flags are hack/controlplane's: what both compile is compiled once.
  local ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version\
 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%%.*}\
 -X k8s.io/component-base/version.gitTreeState=clean"
  local command=(go build -mod=readonly -buildvcs=false -trimpath -ldflags "$ldflags" -o "$work/kubelet" k8s.io/kubernetes/cmd/kubelet)
  if ! (cd "$module" && CGO_ENABLED=0 GOWORK=off "${command[@]}") >"$log" 2>&1; then
    stop_ticker
    grep -v '^go: downloading' "$log" | tail -n 20 >&2
    die "building the kubelet failed: (cd $module && CGO_ENABLED=0 go build k8s.io/kubernetes/cmd/kubelet); is the network there, and 1 GB of disk?"
  fi
  stop_ticker
  echo "built kubelet in $((SECONDS - begun))s"
}

link_runtime || unpack_runtime
build_kubelet
keep kubelet "${runtime[@]}"
