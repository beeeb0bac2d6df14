package probing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// received is what a server sends and nobody may see.
const received = "R3CEIVED"

func TestWhatAnAnswerMeans(t *testing.T) {
	tests := []struct {
		name   string
		status int
		header string // Retry-After or Location
		body   string
		want   probe.Outcome
	}{
		{"a version", 200, "", aVersion, probe.Outcome{Class: "OK"}},
		{"a login page", 200, "", "<html>" + received, probe.Outcome{Class: "UnexpectedAnswer", Detail: "the answer to GET /version isn't an API server's"}},
		{"another JSON", 200, "", `{"a":"` + received + `"}`, probe.Outcome{Class: "UnexpectedAnswer", Detail: "the answer to GET /version isn't an API server's"}},
		{"nothing", 200, "", "", probe.Outcome{Class: "UnexpectedAnswer", Detail: "the answer to GET /version isn't an API server's"}},
		{"a version behind 64 KiB", 200, "", strings.Repeat(" ", 64<<10) + aVersion, probe.Outcome{Class: "UnexpectedAnswer", Detail: "the answer to GET /version isn't an API server's"}},
		{"a redirect", 302, "https://127.0.0.1/" + received, "", probe.Outcome{Class: "Redirected", Detail: "HTTP status 302"}},
		{"no content", 204, "", "", probe.Outcome{Class: "UnexpectedAnswer", Detail: "HTTP status 204"}},
		{"unauthorized", 401, "", received, probe.Outcome{Class: "Unauthorized", Detail: "HTTP status 401"}},
		{"forbidden", 403, "", received, probe.Outcome{Class: "Forbidden", Detail: "HTTP status 403"}},
		{"not found", 404, "", received, probe.Outcome{Class: "UnexpectedAnswer", Detail: "HTTP status 404"}},
		{"throttled", 429, "", received, probe.Outcome{Class: "TooManyRequests", Detail: "HTTP status 429"}},
		{"throttled for seconds", 429, "7", received, probe.Outcome{Class: "TooManyRequests", Detail: "HTTP status 429", RetryAfter: 7 * time.Second}},
		{"broken", 500, "", received, probe.Outcome{Class: "ServerError", Detail: "HTTP status 500"}},
		{"not ready", 503, "7", received, probe.Outcome{Class: "ServerError", Detail: "HTTP status 503"}},
		{"an odd status", 999, "", received, probe.Outcome{Class: "UnexpectedAnswer", Detail: "HTTP status 999"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			s := startStub(t, func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.Header().Set("Location", tt.header)
				w.Header().Set("Retry-After", tt.header)
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			})
			if got := s.client(t, 1).probe(t.Context(), time.Minute, time.Now); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if asked != 1 {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}

// What it leads to would have answered as a healthy API server does.
func TestARedirectIsNotFollowedAndCountsNothing(t *testing.T) {
	var followed atomic.Int32
	elsewhere := startStub(t, func(w http.ResponseWriter, r *http.Request) {
		followed.Add(1)
		answerVersion(w, r)
	})
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			s := startStub(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", elsewhere.URL+r.URL.Path)
				w.WriteHeader(status)
			})
			c := s.client(t, 100)
			want := probe.Outcome{Class: "Redirected", Detail: "HTTP status " + strconv.Itoa(status)}
			if got := c.probe(t.Context(), time.Minute, time.Now); got != want || got.Result() != probe.Unknown {
				t.Errorf("a probe: %+v, which counts as %v", got, got.Result())
			}
			_, _, err := c.nodeLeases(t.Context(), clock.RealClock{}, time.Minute, probe.LeaseSettings{})
			if got := classify(err); got != want {
				t.Errorf("a list: %+v", got)
			}
		})
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("%d were followed", n)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	tests := map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"30":                            30 * time.Second,
		"300":                           5 * time.Minute,
		"301":                           5 * time.Minute,
		"4294967295":                    5 * time.Minute,
		"99999999999999999999":          0,
		"-1":                            0,
		"1.5":                           0,
		"soon":                          0,
		"Sat, 21 Nov 2026 12:00:45 GMT": 45 * time.Second,
		"Sat, 21 Nov 2026 11:59:00 GMT": 0,
		"Sun, 21 Nov 2027 12:00:00 GMT": 5 * time.Minute,
	}
	for value, want := range tests {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q is %s, want %s", value, got, want)
		}
	}
}

func TestWhyTLSFails(t *testing.T) {
	tests := []struct {
		name         string
		names        []string
		from, until  time.Duration
		otherTrusted bool
		want         string
	}{
		{"fine", []string{"127.0.0.1"}, -time.Hour, time.Hour, false, ""},
		{"another name", []string{received + ".example"}, -time.Hour, time.Hour, false, "the server's certificate is for another name"},
		{"expired", []string{"127.0.0.1"}, -2 * time.Hour, -time.Hour, false, "the server's certificate has expired or isn't valid yet"},
		{"another authority", []string{"127.0.0.1"}, -time.Hour, time.Hour, true, "the server's certificate is signed by an authority that isn't trusted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			certificate := selfSigned(t, tt.from, tt.until, tt.names...)
			s := startStub(t, answerVersion, withCertificate(certificate))
			ca := certificate.Certificate[0]
			if tt.otherTrusted {
				ca = selfSigned(t, tt.from, tt.until, tt.names...).Certificate[0]
			}
			want := probe.Outcome{Class: "CertificateUntrusted", Detail: tt.want}
			if tt.want == "" {
				want = probe.Outcome{Class: "OK"}
			}
			if got := clientFor(t, kubeconfigFor(s.proxy.Addr(), ca), 1).probe(t.Context(), time.Minute, time.Now); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func TestServersThatAreNoneOfHTTPS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(answerVersion))
	t.Cleanup(plain.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ca := selfSigned(t, -time.Hour, time.Hour, "127.0.0.1").Certificate[0]
	for address, want := range map[string]probe.Outcome{
		plain.Listener.Addr().String(): {Class: "TLS", Detail: "the server doesn't speak TLS"},
		free.Addr().String():           {Class: "Dial", Detail: "the connection was refused"},
	} {
		if got := clientFor(t, kubeconfigFor(address, ca), 1).probe(t.Context(), time.Minute, time.Now); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestAnAddressThatTurnsOutToBeForbiddenIsNotTheServersFault(t *testing.T) {
	s := startStub(t, answerVersion)
	_, port, err := net.SplitHostPort(s.proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	access, err := kubeconfig.Policy{}.Parse(kubeconfigFor("localhost:"+port, s.Certificate().Raw))
	if err != nil {
		t.Fatal(err)
	}
	got := newClient(access, kubeconfig.Policy{}, 1).probe(t.Context(), time.Minute, time.Now)
	if want := (probe.Outcome{Class: "AddressRefused", Detail: "the kubeconfig's server is this machine itself (a loopback address)"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.expectDialled(t, 0)
}

func TestNamesThatDoNotResolve(t *testing.T) {
	for err, want := range map[error]string{
		&net.DNSError{Err: received, Name: received, IsNotFound: true}: "the server's name has no address",
		&net.DNSError{Err: received, Name: received, IsTimeout: true}:  "DNS didn't answer in time",
		&net.DNSError{Err: received, Name: received}:                   "the server's name couldn't be resolved",
	} {
		got := classify(&net.OpError{Op: "dial", Err: err})
		if (got != probe.Outcome{Class: "Resolve", Detail: want}) {
			t.Errorf("%v is %+v", err, got)
		}
	}
}

func TestRefusedKubeconfigs(t *testing.T) {
	for refusal, want := range map[kubeconfig.Refusal]probe.Class{
		kubeconfig.Malformed: "KubeconfigInvalid", kubeconfig.NoServer: "KubeconfigInvalid", kubeconfig.ExecPlugin: "KubeconfigUnsafe",
		kubeconfig.InsecureTLS: "KubeconfigUnsafe", kubeconfig.Loopback: "AddressRefused", kubeconfig.ForbiddenAddress: "AddressRefused",
	} {
		got := OutcomeOf(fmt.Errorf("wrapped: %w", refusal))
		if got.Class != want || got.Detail != refusal.Error() {
			t.Errorf("%s is %+v", string(refusal), got)
		}
	}
}

// Whatever a server says after the handshake: an outcome in our own words, and no goroutine left.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 49\r\n\r\n" + aVersion))
	f.Add([]byte("HTTP/1.1 429 " + received + "\r\nRetry-After: 10\r\nContent-Length: 0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 302 Found\r\nLocation: " + received + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
	f.Add([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"))
	certificate := selfSigned(f, -time.Hour, time.Hour, "127.0.0.1")
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = listener.Close() })
	config := kubeconfigFor(listener.Addr().String(), certificate.Certificate[0])
	access, err := loopback.Parse(config)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = conn.Write(answer)
		}()
		c := newClient(access, loopback, 1)
		outcome := c.probe(t.Context(), time.Minute, time.Now)
		c.close()
		<-served
		if outcome.Class == "" || strings.Contains(outcome.Detail, received) || outcome.RetryAfter < 0 || outcome.RetryAfter > 5*time.Minute {
			t.Fatalf("%+v", outcome)
		}
	})
}

// selfSigned is its own authority, valid between two moments seen from now.
func selfSigned(t testing.TB, from, until time.Duration, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: received}, NotBefore: now.Add(from), NotAfter: now.Add(until),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}
