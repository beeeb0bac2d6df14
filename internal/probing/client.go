package probing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

const (
	// maxBody bounds what is read of an answer to a probe. An API server's version has 400 bytes.
	maxBody = 64 << 10
	// userAgent identifies probes in API servers' audit logs.
	userAgent = "autohealer-prober"
)

// client probes one API server over a connection of its own, which is kept between runs. One run at a time.
type client struct {
	access    *kubeconfig.Access
	transport *http.Transport
	request   *http.Request
	// redialEvery is after how many runs a connection is replaced.
	redialEvery int
	conn        *http.ClientConn
	// remainingRuns is how many runs may still use conn. The first connection is given fewer, so that the new ones of many clients
	// that began together don't come in waves.
	remainingRuns int
}

func newClient(access *kubeconfig.Access, policy kubeconfig.Policy, redialEvery int) *client {
	dialer := net.Dialer{KeepAlive: -1} // a probe itself notices a dead connection
	c := &client{access: access, transport: access.Transport(policy, dialer), redialEvery: redialEvery, remainingRuns: 1 + rand.N(redialEvery)}
	c.request = &http.Request{
		Method: http.MethodGet, URL: access.URL("/version"), Host: access.Server(), Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {userAgent}, "Accept": {"application/json"}},
	}
	access.Authorize(c.request.Header)
	return c
}

// probe makes one probe, within timeout. A kept connection says little about whether new ones can be made, so every redialEvery-th run and
// each one after a failure dials a new one; and a request that fails on a kept connection is repeated at once on a new one, with its own
// timeout, because the connection may have died silently.
func (c *client) probe(ctx context.Context, timeout time.Duration, now func() time.Time) probe.Outcome {
	if c.conn != nil && c.remainingRuns > 0 && c.conn.Available() > 0 {
		outcome := c.ask(ctx, timeout, now)
		if outcome.Class != probe.Connection && outcome.Class != probe.Timeout {
			return outcome
		}
	}
	c.close()
	return c.ask(ctx, timeout, now)
}

// ask makes one request on the connection, and dials it before if there is none. After a failure there is none.
func (c *client) ask(ctx context.Context, timeout time.Duration, now func() time.Time) probe.Outcome {
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	outcome, err := c.exchange(attempt, now)
	if err != nil {
		outcome = classify(err)
	}
	if outcome.Class != probe.OK && ctx.Err() != nil {
		outcome = probe.Outcome{Class: probe.NotRun}
	}
	if outcome.Result() != probe.Success {
		c.close()
	}
	return outcome
}

func (c *client) exchange(ctx context.Context, now func() time.Time) (probe.Outcome, error) {
	if err := c.connect(ctx); err != nil {
		return probe.Outcome{}, err
	}
	c.remainingRuns--
	response, err := c.conn.RoundTrip(c.request.WithContext(ctx))
	if err != nil {
		return probe.Outcome{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return outcomeOfStatus(response, now()), nil
	}
	return checkVersion(response.Body)
}

func (c *client) connect(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	conn, err := c.transport.NewClientConn(ctx, "https", c.access.Server())
	if err != nil {
		return err
	}
	c.conn = conn
	return nil
}

// close drops the connection; the next run dials. A nil client has none.
func (c *client) close() {
	if c != nil && c.conn != nil {
		_ = c.conn.Close() // it is given up either way
		c.conn, c.remainingRuns = nil, c.redialEvery
	}
}

// checkVersion checks whether the body of an answer 200 is an API server's.
func checkVersion(body io.Reader) (probe.Outcome, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	if err != nil {
		return probe.Outcome{}, err
	}
	var info version.Info
	isJSON := json.Unmarshal(text, &info) == nil
	if len(text) > maxBody || !isJSON || info.GitVersion == "" {
		return probe.Outcome{Class: probe.UnexpectedAnswer, Detail: "the answer to GET /version isn't an API server's"}, nil
	}
	return probe.Outcome{Class: probe.OK}, nil
}

// maxRetryAfter bounds what a server can make us wait.
const maxRetryAfter = 5 * time.Minute

// OutcomeOf is the outcome for an error of [kubeconfig.Policy.Parse] or [Prober.Set].
func OutcomeOf(err error) probe.Outcome {
	class, refusal := probe.KubeconfigInvalid, kubeconfig.Malformed
	_ = errors.As(err, &refusal) // they return nothing else
	switch {
	case refusal.Address():
		class = probe.AddressRefused
	case refusal.Unsafe():
		class = probe.KubeconfigUnsafe
	}
	return probe.Outcome{Class: class, Detail: refusal.Error()}
}

// outcomeOfStatus is the outcome of an answer other than 200.
func outcomeOfStatus(response *http.Response, now time.Time) probe.Outcome {
	outcome := classifyStatus(response.StatusCode)
	if outcome.Class == probe.TooManyRequests {
		outcome.RetryAfter = retryAfter(response.Header.Get("Retry-After"), now)
	}
	return outcome
}

// outcomeError is an error that tells what came of the probe.
type outcomeError struct{ probe.Outcome }

func (e outcomeError) Error() string { return e.Detail }

// classifyStatus puts an answer other than 200 into a class.
func classifyStatus(status int) probe.Outcome {
	class := probe.UnexpectedAnswer
	switch {
	case status == http.StatusTooManyRequests:
		class = probe.TooManyRequests
	case status == http.StatusUnauthorized:
		class = probe.Unauthorized
	case status == http.StatusForbidden:
		class = probe.Forbidden
	case status >= 300 && status < 400:
		class = probe.Redirected
	case status >= 500 && status < 600:
		class = probe.ServerError
	}
	return probe.Outcome{Class: class, Detail: "HTTP status " + strconv.Itoa(status)}
}

// retryAfter reads seconds or a date (RFC 9110, 10.2.3); 0 for neither, and at most 5 minutes.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// classify maps an error of dialling or of a request to an outcome, with a text of our own: errors quote what was received.
func classify(err error) probe.Outcome {
	var refusal kubeconfig.Refusal
	var name *net.DNSError
	var known outcomeError
	switch {
	case errors.As(err, &known):
		return known.Outcome
	case errors.As(err, &refusal):
		return OutcomeOf(err)
	case errors.As(err, &name):
		return probe.Outcome{Class: probe.Resolve, Detail: resolveDetail(name)}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return probe.Outcome{Class: probe.Timeout, Detail: timeoutDetail(err)}
	}
	if detail := untrustedDetail(err); detail != "" {
		return probe.Outcome{Class: probe.Untrusted, Detail: detail}
	}
	if detail := tlsDetail(err); detail != "" {
		return probe.Outcome{Class: probe.TLS, Detail: detail}
	}
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		return probe.Outcome{Class: probe.Dial, Detail: dialDetail(err)}
	}
	return probe.Outcome{Class: probe.Connection, Detail: "the connection broke before there was a whole answer"}
}

func resolveDetail(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "the server's name has no address"
	case err.IsTimeout:
		return "DNS didn't answer in time"
	}
	return "the server's name couldn't be resolved"
}

func timeoutDetail(err error) string {
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		return "no connection in time"
	}
	return "no whole answer in time"
}

func dialDetail(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no route to the server"
	}
	return "no connection came about"
}

// untrustedDetail is empty for an error that isn't about the server's certificate.
func untrustedDetail(err error) string {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &authority):
		return "the server's certificate is signed by an authority that isn't trusted"
	case errors.As(err, &host):
		return "the server's certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server's certificate has expired or isn't valid yet"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "the server's certificate isn't valid"
	}
	return ""
}

// tlsDetail is empty for an error that isn't about TLS.
func tlsDetail(err error) string {
	var (
		alert   tls.AlertError
		record  tls.RecordHeaderError
		network *net.OpError
	)
	switch {
	case errors.As(err, &record):
		return "the server doesn't speak TLS"
	case errors.As(err, &alert), errors.As(err, &network) && network.Op == "remote error", errors.As(err, &network) && network.Op == "local error":
		return "the TLS handshake failed"
	}
	return ""
}
