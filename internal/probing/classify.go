package probing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

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
