package envoy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/resourcestack/autohealer/internal/xds"
)

// accepting is a host that accepts connections and does something with each.
func accepting(t *testing.T, do func(*net.TCPConn)) *Backend {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go do(conn.(*net.TCPConn))
		}
	}()
	return at(l.Addr().(*net.TCPAddr).Port)
}

func at(port int) *Backend {
	return &Backend{Address: fmt.Sprintf("127.0.0.1:%d", port), Port: uint32(port)}
}

// dropping is a host that drops SYNs: it listens, accepts nothing, and no more connections may wait.
func dropping(t *testing.T) *Backend {
	t.Helper()
	g := NewWithT(t)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = syscall.Close(fd) })
	g.Expect(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})).To(Succeed())
	g.Expect(syscall.Listen(fd, 0)).To(Succeed())
	address, err := syscall.Getsockname(fd)
	g.Expect(err).NotTo(HaveOccurred())
	b := at(address.(*syscall.SockaddrInet4).Port)
	for range 8 {
		conn, err := (&net.Dialer{Timeout: 300 * time.Millisecond}).DialContext(t.Context(), "tcp", b.Address)
		if err != nil {
			return b
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("it takes any number of connections")
	return nil
}

// TestWhichFailuresAreCounted is the table in docs/concepts/outlier-policies.md.
func TestWhichFailuresAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		failing      func(*testing.T) *Backend
		mixed, split bool
	}{
		"a 5xx": {func(t *testing.T) *Backend { b := NewBackend(t); b.Answer(500); return b }, true, true},
		"a refused connection": {func(t *testing.T) *Backend {
			b := NewBackend(t)
			b.Refuse()
			return b
		}, true, true},
		"no answer to SYN": {dropping, true, true},
		"a reset before headers": {func(t *testing.T) *Backend {
			return accepting(t, func(conn *net.TCPConn) {
				_, _ = conn.Read(make([]byte, 4096)) // the request
				_ = conn.SetLinger(0)
				_ = conn.Close()
			})
		}, true, false},
		"no answer until the time-out": {func(t *testing.T) *Backend { return accepting(t, func(*net.TCPConn) {}) }, true, false},
	} {
		for mode, m := range map[string]struct {
			detect  detection
			ejected bool
		}{"mixed": {func(*clusterv3.Cluster) {}, c.mixed}, "split": {split(5), c.split}} {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				g, server := NewWithT(t), serve(t, xds.Options{})
				bad, good := c.failing(t), NewBackend(t)
				server.cluster(web, func(cluster *clusterv3.Cluster) {
					m.detect(cluster)
					cluster.ConnectTimeout = durationpb.New(200 * time.Millisecond)
				}, bad, good)
				server.publish()
				e := server.envoy(Listener{Name: "web", Cluster: web, Timeout: 400 * time.Millisecond})
				server.acked(web, 1)
				g.Eventually(func() []Host { return e.Hosts(web) }, "10s").Should(HaveLen(2))
				e.Statuses("web", 24)
				if m.ejected {
					g.Eventually(func() []string { return e.Ejected(web) }, "10s").Should(Equal([]string{bad.Address}))
				} else {
					g.Consistently(func() []string { return e.Ejected(web) }, "500ms").Should(BeEmpty(), "of 24 requests half went there")
				}
			})
		}
	}
}

// TestWhichStatusesOfGRPCAreCounted: those that Envoy takes for a 5xx, where the answer has nothing but headers.
func TestWhichStatusesOfGRPCAreCounted(t *testing.T) {
	g, server := NewWithT(t), serve(t, xds.Options{})
	var status atomic.Int64
	host := accepting(t, func(conn *net.TCPConn) {
		requests := bufio.NewReader(conn)
		for {
			r, err := http.ReadRequest(requests)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nGrpc-Status: %d\r\nContent-Length: 0\r\n\r\n", status.Load())
		}
	})
	server.cluster(web, func(c *clusterv3.Cluster) { c.OutlierDetection.EnforcingConsecutive_5Xx = wrapperspb.UInt32(0) }, host)
	server.publish()
	e := server.envoy(Listener{Name: "web", Cluster: web})
	server.acked(web, 1)
	g.Eventually(func() []Host { return e.Hosts(web) }, "10s").Should(HaveLen(1))
	detected := func() int64 {
		return e.Stat("cluster." + web + ".outlier_detection.ejections_detected_consecutive_5xx")
	}
	var counted []int64
	for code := range int64(17) {
		status.Store(code)
		before := detected()
		for range 5 {
			r, err := trafficClient.Post("http://"+e.Addr("web")+"/a.B/C", "application/grpc", nil)
			g.Expect(err).NotTo(HaveOccurred())
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
		}
		if detected() > before {
			counted = append(counted, code)
		}
	}
	g.Expect(counted).To(Equal([]int64{2, 4, 12, 13, 14, 15}))
}
