# What the build scripts share, to be sourced: binaries that are built or downloaded once for all clones on a machine. Each set lies
# in a directory of $AUTOHEALER_CACHE (default: autohealer in the user's cache directory), named by the set and by a checksum of
# all that it is made from; a clone's bin/ has links to it. A directory there is whole: it is made elsewhere and renamed.

die() { printf 'build.sh: %s\n' "$*" >&2; exit 1; }

# cached SET KEY BINDIR: links the set into BINDIR and ends the script where it is in the cache. Else it returns with $work, an
# empty directory to put the set's files into, and the lock on the set held; `keep` puts it into the cache.
cached() {
  cache=${AUTOHEALER_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/autohealer}
  mkdir -p "$3" "$cache" || die "can't make the directories $3 and $cache; AUTOHEALER_CACHE names another one"
  bindir=$(cd "$3" && pwd)
  entry=$cache/$1-$(cksum <<<"$2 $(uname -sm)" | cut -d' ' -f1)
  if whole; then link; exit 0; fi
  # The lock only saves the second of two runs its work. macOS has no flock.
  if command -v flock >/dev/null; then
    exec 9>"$cache/.$1.lock"
    if ! flock -n 9; then
      echo "waiting for another build of $1"
      flock 9
      if whole; then link; exit 0; fi
    fi
    rm -rf "$cache/.$1".work.* # of a run that was killed
  fi
  work=$(mktemp -d "$cache/.$1.work.XXXXXX") || die "can't write to $cache; is the disk full?"
  trap 'stop_ticker; rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# whole: the set is there, and so is what it has links to, such as a machine's own Envoy.
whole() {
  local file
  [[ -d $entry ]] || return 1
  for file in "$entry"/*; do
    if [[ ! -e $file ]]; then rm -rf "$entry"; return 1; fi
  done
}

# keep NAMES: puts these files of $work into the cache, and links them.
keep() {
  local old
  mkdir "$work/set"
  mv "${@/#/$work/}" "$work/set/"
  # Where there is no lock, another run may have been first.
  [[ -d $entry ]] || mv "$work/set" "$entry" || die "can't write $entry; is the disk full?"
  link
  # What no clone has asked for in a month was made from another version of its sources.
  for old in "${entry%-*}"-*; do
    if [[ -n $(find "$old" -maxdepth 0 -mtime +30) ]]; then rm -rf "$old"; fi
  done
}

# A hard link serves also where a test hides the cache's directory, and when the cache is emptied.
link() {
  local file
  touch "$entry"
  for file in "$entry"/*; do
    [[ $bindir/${file##*/} -ef $file ]] && continue
    ln -f "$file" "$bindir/" 2>/dev/null || ln -sf "$file" "$bindir/"
  done
}

# On a terminal, a line that counts the seconds since $begun; elsewhere nothing.
ticker=
start_ticker() { # text
  [[ -t 1 ]] || return 0
  (
    trap - EXIT
    while printf '\r\033[K%s: %ss' "$1" $((SECONDS - begun)); do sleep 1; done
  ) 9>&- &
  ticker=$!
}

stop_ticker() {
  [[ -n $ticker ]] || return 0
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  ticker=
  printf '\r\033[K'
}
