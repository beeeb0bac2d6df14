package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/e2e/cluster"
)

// server serves webhooks as a manager does, over TLS, in this program.
type server struct {
	url    string
	ca     []byte
	client *http.Client
}

// serve serves until ctx ends.
func serve(ctx context.Context, hooks map[string]hook) (*server, error) {
	certificate, ca, err := testbed.Certificate()
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	port, err := cluster.FreePort()
	if err != nil {
		return nil, err
	}
	s := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
	}}})
	for path, hook := range hooks {
		s.Register(path, hook)
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Start(ctx) }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	served := &server{url: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ca: ca, client: &http.Client{
		Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}},
	}}
	for s.StartedChecker()(nil) != nil {
		select {
		case err := <-failed:
			return nil, fmt.Errorf("serve webhooks: %w", err)
		default:
		}
		if err := testbed.Pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return served, nil
}

// ask sends one review and makes sure that it is allowed.
func (s *server) ask(ctx context.Context, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	if !bytes.Contains(answer, []byte(`"allowed":true`)) {
		return fmt.Errorf("%s answers %s", path, answer)
	}
	return nil
}
