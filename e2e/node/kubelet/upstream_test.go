//go:build linux

package kubelet

import (
	"net"
	"strconv"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// upstream is a TCP address of the machine that refuses connections until it is opened. It is bound all the while: nobody
// else gets it.
type upstream struct {
	socket  int
	address string
}

func newUpstream() *upstream {
	GinkgoHelper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return syscall.Close(socket) })
	Expect(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})).To(Succeed())
	bound, err := syscall.Getsockname(socket)
	Expect(err).NotTo(HaveOccurred())
	port := bound.(*syscall.SockaddrInet4).Port
	return &upstream{socket, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}

// open lets dependents connect. Nobody accepts their connections, which the kernel then holds; that is all they need.
func (u *upstream) open() {
	GinkgoHelper()
	Expect(syscall.Listen(u.socket, 128)).To(Succeed())
}
