package probing

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
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
