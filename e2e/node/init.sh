# The first process of a node's namespaces. $1 is the node's directory, $2 that of the binaries. Standard input ends when
# the program that started this does; then this ends, and the kernel ends everything else in here.
set -eu
trap '' HUP INT TERM
# Before all: no mount below may reach the machine.
mount -n --make-rprivate /

# A /run of our own, where the directories have fixed names, whatever /var and /run hide below.
mount -n -t tmpfs -o mode=755 autohealer-node "$1/run"
mkdir "$1/run/node" "$1/run/bin"
mount -n --bind "$1" "$1/run/node"
mount -n --bind "$2" "$1/run/bin"
mount -n --move "$1/run" /run
mount -n --bind /run/node/var /var
mount -n -t proc proc /proc

# A kubelet sets the whole kernel to these values. Here it reads them, finds nothing to do, and the machine keeps its own.
# From kubernetes/pkg/kubelet/cm, setupKernelTunables.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=/run/sysctl-$(echo "${setting%=*}" | tr / -)
  echo "${setting#*=}" >"$file"
  mount -n --bind "$file" "/proc/sys/${setting%=*}"
done

echo ready
# wait also takes the exit status of orphans, which become ours; reading in the foreground would leave zombies.
exec 3<&0
while read -r _; do :; done <&3 &
wait $!
