# Removes what of a node isn't in its namespaces: the cgroups named $1 and the directory $2. Standard input ends when the
# node shall go or the program that started it is dead. Processes of the node may live for a moment longer and hold their
# cgroups, hence the repetition.
trap '' HUP INT TERM
while read -r _; do :; done
n=0
while :; do
  left=
  for cgroup in "/sys/fs/cgroup/$1" /sys/fs/cgroup/*/"$1"; do
    [ -d "$cgroup" ] || continue
    find "$cgroup" -depth -type d -exec rmdir {} \; 2>/dev/null
    [ -d "$cgroup" ] && left="$left $cgroup"
  done
  # Nothing is mounted below it here; if that were wrong, only the mount point would be in the way, not what is mounted.
  [ -n "$left" ] || rm -rf --one-file-system "$2" 2>/dev/null
  [ -e "$2" ] && left="$left $2"
  [ -n "$left" ] || exit 0
  n=$((n + 1))
  if [ "$n" -ge 300 ]; then
    echo "left behind:$left" >&2
    exit 1
  fi
  sleep 0.1
done
