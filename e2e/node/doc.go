// Package node joins a real node to a control plane of e2e/cluster: a kubelet on containerd, without Docker and without
// images from anywhere. It needs Linux, root, and the binaries of `make node`; Unavailable says what is missing.
//
// The node lives in a mount and a PID namespace of its own, in which /run and /var are its own and kernel settings can't be
// reached. So nothing of it can be left behind: when the namespace's first process ends, the kernel ends kubelet,
// containerd, shims and containers, and their mounts with them. That process ends when this program does, however it
// ends, and a watchdog removes directory and cgroups then. The network is the machine's: pods use the host's, and
// the kubelet's server listens at all of its addresses, for the API server alone.
package node
