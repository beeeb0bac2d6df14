package shoots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// one is the ConfigMap that there is, as it is in a list or an event.
const one = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"n","name":"c","resourceVersion":"1"}}`

// exchange answers a client's requests without a network.
type exchange func(*http.Request) (*http.Response, error)

func (e exchange) RoundTrip(r *http.Request) (*http.Response, error) { return e(r) }

// healthyServer answers lists and watches as an API server that has one ConfigMap. The connection of watches is lost when ended is closed.
func healthyServer(ended <-chan struct{}) exchange {
	return func(r *http.Request) (*http.Response, error) {
		response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
		if r.URL.Query().Get("watch") == "" {
			response.Body = io.NopCloser(strings.NewReader(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + one + `]}`))
			return response, nil
		}
		events, writer := io.Pipe()
		response.Body = events
		go func() {
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				_, _ = fmt.Fprint(writer, `{"type":"ADDED","object":`, one, `}{"type":"BOOKMARK","object":`,
					strings.Replace(one, `"resourceVersion"`, `"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion"`, 1), `}`)
			}
			select {
			case <-ended:
			case <-r.Context().Done():
			}
			_ = writer.CloseWithError(errors.New("http2: client connection lost"))
		}()
		return response, nil
	}
}

// unlogged keeps client-go from waiting, before it logs an error, until the real time has come: in a synctest bubble that takes decades.
func unlogged(t *testing.T) {
	t.Helper()
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// sourceOf gives the source of a Mirror of the ConfigMaps that requests find.
func sourceOf(t *testing.T, requests http.RoundTripper) Source {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.NewWithWatch(&rest.Config{Host: "https://api.example.org", QPS: -1},
		client.Options{HTTPClient: &http.Client{Transport: requests}, Scheme: scheme, Mapper: kinds})
	if err != nil {
		t.Fatal(err)
	}
	return Source{
		Client: c, Timeout: 10 * time.Second, Clock: clock.RealClock{}, Changed: func(client.Object) {},
		List: func() client.ObjectList { return &corev1.ConfigMapList{} },
	}
}

func TestAShootThatEndsEveryConnectionIsUnusable(t *testing.T) {
	unlogged(t)
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for name, broken := range map[string]error{"with EOF": io.EOF, "with a reset": reset} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				ended := make(chan struct{})
				m := Open(sourceOf(t, exchange(func(r *http.Request) (*http.Response, error) {
					if down.Load() {
						return nil, broken
					}
					return healthyServer(ended)(r)
				})))
				defer synctest.Wait()
				defer m.Close()
				synctest.Wait()
				if o, err := m.Objects(); err != nil || len(o) != 1 {
					t.Fatalf("at first: %v, %v", o, err)
				}
				down.Store(true)
				close(ended)
				time.Sleep(11 * time.Second)
				believed := 0
				for range 180 {
					time.Sleep(time.Second)
					if _, err := m.Objects(); err == nil {
						believed++
					} else if !strings.Contains(err.Error(), broken.Error()) && !strings.Contains(err.Error(), "no answer within 10s") {
						t.Fatalf("it says %v", err)
					}
				}
				if believed > 0 {
					t.Errorf("%d of 180 looks believed what was seen before", believed)
				}
				ended = make(chan struct{})
				down.Store(false)
				time.Sleep(20 * time.Second)
				if o, err := m.Objects(); err != nil || len(o) != 1 {
					t.Errorf("once it is well again: %v, %v", o, err)
				}
			})
		})
	}
}

func TestASilentShootIsUnusable(t *testing.T) {
	unlogged(t)
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		ended := make(chan struct{})
		m := Open(sourceOf(t, exchange(func(r *http.Request) (*http.Response, error) {
			if silent.Load() {
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			}
			return healthyServer(ended)(r)
		})))
		defer synctest.Wait()
		defer m.Close()
		for range 3 { // in a row, so that it is asked again less and less often
			time.Sleep(20 * time.Second)
			if _, err := m.Objects(); err != nil {
				t.Fatalf("while it is well: %v", err)
			}
			silent.Store(true)
			close(ended)
			time.Sleep(11 * time.Second)
			if _, err := m.Objects(); err == nil {
				t.Error("what was seen before is believed 11 s after the connection was lost")
			}
			time.Sleep(time.Minute)
			ended = make(chan struct{})
			silent.Store(false)
		}
	})
}

// swallowing accepts connections and never answers, while swallows is set.
type swallowing struct {
	net.Listener
	swallows  atomic.Bool
	swallowed chan net.Conn
}

func (s *swallowing) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil || !s.swallows.Load() {
			return conn, err
		}
		s.swallowed <- conn
	}
}

func TestAShootWhoseConnectionWasSwallowedIsWatchedAgain(t *testing.T) {
	server := httptest.NewUnstartedServer(discovered(func(w http.ResponseWriter, r *http.Request) {
		response, _ := healthyServer(nil)(r)
		w.(http.Flusher).Flush()
		buffer := make([]byte, 1<<10)
		for {
			n, err := response.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	}))
	listener := &swallowing{Listener: server.Listener, swallowed: make(chan net.Conn, 100)}
	server.Listener = listener
	server.StartTLS()
	defer server.Close()
	source := Source{
		Client: connectionTo(t, server, 200*time.Millisecond).WatchClient, Timeout: 200 * time.Millisecond, Clock: clock.RealClock{},
		Changed: func(client.Object) {}, List: func() client.ObjectList { return &corev1.ConfigMapList{} },
	}
	m := Open(source)
	defer m.Close()
	eventually := func(what string, holds func([]client.Object, error) bool) {
		t.Helper()
		var found []client.Object
		var err error
		if wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
			found, err = m.Objects()
			return holds(found, err), nil
		}) != nil {
			t.Fatalf("%s: %d objects, %v", what, len(found), err)
		}
	}
	usable := func(found []client.Object, err error) bool { return err == nil && len(found) == 1 }
	eventually("at first", usable)
	listener.swallows.Store(true)
	server.CloseClientConnections()
	swallowed := <-listener.swallowed
	defer swallowed.Close() //nolint:errcheck // the test's own
	listener.swallows.Store(false)
	eventually("while a connection is swallowed", func(_ []client.Object, err error) bool { return err != nil })
	eventually("once none is any more", usable)
	if err := swallowed.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, swallowed); err != nil {
		t.Errorf("what was swallowed is still open: %v", err)
	}
}

// A proxy that speaks HTTP/1.1 and dies silently leaves a watch without HTTP/2 pings.
func TestConnectionsToShootsAreKeptAliveByTCP(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	conn, err := connectionTo(t, server, time.Second).transport.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the test's own
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if failed := raw.Control(func(fd uintptr) {
		var kept int
		if kept, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE); kept == 0 {
			t.Errorf("they are not: %v", err)
		}
	}); failed != nil {
		t.Fatal(failed)
	}
}

func TestAShootThatCantBeReachedGivesOneError(t *testing.T) {
	unlogged(t)
	at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	for name, c := range map[string]struct {
		broken exchange
		want   string
	}{
		"refused": {func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: syscall.ECONNREFUSED}
		}, "dial tcp 192.0.2.1:443: connection refused"},
		"swallowed": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, "no answer within 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := Open(sourceOf(t, c.broken))
				defer synctest.Wait()
				defer time.Sleep(time.Minute) // client-go's back-off doesn't hear that it is over
				defer m.Close()
				time.Sleep(time.Minute)
				said := map[string]int{}
				for range 40 {
					time.Sleep(30 * time.Second)
					_, err := m.Objects()
					said[fmt.Sprint(err)]++
				}
				if said[c.want] != 40 {
					t.Errorf("40 looks say %v", said)
				}
			})
		})
	}
}

func TestARecoveredMirrorHasCurrentObjects(t *testing.T) {
	unlogged(t)
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		ended := make(chan struct{})
		healthy := func(r *http.Request) (*http.Response, error) { return healthyServer(ended)(r) }
		var m *Mirror
		var old atomic.Int32
		var looking atomic.Bool
		source := sourceOf(t, exchange(func(r *http.Request) (*http.Response, error) {
			if down.Load() || r.URL.Query().Get("watch") == "" { // only watches list
				return nil, io.EOF
			}
			return healthy(r)
		}))
		source.Changed = func(client.Object) {
			if !looking.Load() {
				return
			}
			if o, err := m.Objects(); err == nil && len(o) > 0 {
				old.Add(1)
			}
		}
		m = Open(source)
		defer synctest.Wait()
		defer time.Sleep(time.Minute) // client-go's back-off doesn't hear that it is over
		defer m.Close()
		synctest.Wait()
		down.Store(true)
		close(ended)
		time.Sleep(time.Minute)
		ended = make(chan struct{})
		healthy = emptyServer(ended)
		looking.Store(true)
		down.Store(false)
		time.Sleep(time.Minute)
		if o, err := m.Objects(); err != nil || len(o) != 0 || old.Load() != 0 {
			t.Errorf("%d looks believed what was there before; now there are %d, %v", old.Load(), len(o), err)
		}
	})
}

// emptyServer answers watches as an API server that has no ConfigMap any more.
func emptyServer(ended <-chan struct{}) exchange {
	return func(r *http.Request) (*http.Response, error) {
		response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
		events, writer := io.Pipe()
		response.Body = events
		go func() {
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				_, _ = fmt.Fprint(writer, `{"type":"BOOKMARK","object":`, strings.Replace(one, `"resourceVersion":"1"`, `"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"2"`, 1), `}`)
			}
			select {
			case <-ended:
			case <-r.Context().Done():
			}
			_ = writer.Close()
		}()
		return response, nil
	}
}
