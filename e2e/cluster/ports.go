package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// All ports are on 127.0.0.1 and below those that systems give to outgoing connections: one of these could take a port before it is
// listened at, or while what listens there restarts, and a client that dials a restarting server at such a port can connect to itself.
// A program that starts clusters has a block of ports for as long as it lives, so that no other takes a port in the same moment.
const (
	firstPort, blocks, blockSize = 20000, 100, 100
)

// block gives the first port of this program's block. The program holds it and doesn't listen there.
var block = sync.OnceValues(func() (int, error) {
	for _, i := range rand.Perm(blocks) {
		if first := firstPort + i*blockSize; hold(first) == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("find free ports: each of the %d blocks from %d on is some program's", blocks, firstPort)
})

// hold takes a port until this program ends. Connections to it are refused.
func hold(port int) error {
	syscall.ForkLock.RLock() // until no other process can inherit the socket
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return errors.Join(err, syscall.Close(socket))
	}
	return nil
}

// Unserved is an address at which connections are refused for as long as this program lives, whatever else runs on the machine.
func Unserved() string {
	first, err := block()
	if err != nil {
		panic(err)
	}
	return local(first)
}

var portsGiven atomic.Int64

// FreePort gives a port at which nobody listens, and that no other program with clusters is given.
func FreePort() (int, error) {
	first, err := block()
	if err != nil {
		return 0, err
	}
	for range blockSize {
		port := first + 1 + int(portsGiven.Add(1))%(blockSize-1)
		listener, err := net.Listen("tcp", local(port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("free port %d: %w", port, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("find a free port between %d and %d: none", first, first+blockSize)
}

// FreeAddress is 127.0.0.1 with a FreePort.
func FreeAddress() string {
	port, err := FreePort()
	if err != nil {
		panic(err)
	}
	return local(port)
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// ports of one cluster.
type ports struct{ etcd, apiServer, kwok int }

func freePorts() (p ports, err error) {
	for _, port := range []*int{&p.etcd, &p.apiServer, &p.kwok} {
		if *port, err = FreePort(); err != nil {
			return ports{}, err
		}
	}
	return p, nil
}

// HostIP is an address of this machine's that EndpointSlices may have: they take none of loopback. "" where there is none.
func HostIP() (string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find an address of this machine's: %w", err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String(), nil
		}
	}
	return "", nil
}
