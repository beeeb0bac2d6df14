// Package cluster starts and stops a real control plane on this machine: etcd, the API server, and, where asked for, the
// controller manager, the scheduler and kwok, which plays nodes and pods. It needs the binaries of `make controlplane`
// and nothing else: no Docker, no root, no network beyond 127.0.0.1.
//
// Nothing outlives the program that started it: Stop ends every process and removes the directory, and a watchdog does
// the same when the program dies without Stop, SIGKILL included.
package cluster
