package probe

import (
	"time"
)

// Outcome is what one run of a probe found. The zero value is Unknown.
type Outcome struct {
	// Class says what happened; whether that is a success, a failure or neither follows from it.
	Class Class
	// Detail explains a Class other than OK in our own words, for a condition's message: never bytes that were received and
	// nothing from a Secret.
	Detail string
	// RetryAfter is how long the server asked to be left alone, with TooManyRequests; 0 when it didn't say.
	RetryAfter time.Duration
}

// Result says whether the run was a success, a failure or neither.
func (o Outcome) Result() Result { return o.Class.Result() }

// Result is what the outcome of a run does to the counts of its probe.
type Result int

const (
	// Unknown: there was no run that says anything about the API server. Nothing is counted, and nothing new is done.
	Unknown Result = iota
	// Success: the API server answered as a healthy one does.
	Success
	// Failure: it didn't answer, or answered that it can't serve.
	Failure
	// Transient: it answered that it doesn't serve us just now. Nothing is counted, and nothing new is done.
	Transient
)

// String names the result as metrics and logs do.
func (r Result) String() string {
	return [...]string{"unknown", "success", "failure", "transient"}[r]
}

// Class is what happened in a run of a probe, as status and metrics name it.
type Class string

const (
	// OK: it answered with 200.
	OK Class = "OK"

	// TooManyRequests is the answer 429.
	TooManyRequests Class = "TooManyRequests"
	// Unauthorized is the answer 401: most likely the credentials are being rotated.
	Unauthorized Class = "Unauthorized"
	// Forbidden is the answer 403: most likely the credentials are being rotated.
	Forbidden Class = "Forbidden"

	// Resolve: the server's name has no address.
	Resolve Class = "Resolve"
	// Dial: no connection came about, refused or unreachable.
	Dial Class = "Dial"
	// Timeout: there was no whole answer within probeTimeout.
	Timeout Class = "Timeout"
	// TLS: the handshake failed.
	TLS Class = "TLS"
	// Untrusted: the server's certificate isn't one that the kubeconfig trusts: most likely one of the two is being rotated.
	Untrusted Class = "CertificateUntrusted"
	// Connection: it broke before there was a whole answer.
	Connection Class = "Connection"
	// ServerError is an answer from 500 to 599.
	ServerError Class = "ServerError"
	// UnexpectedAnswer is any other answer, such as one that isn't from an API server.
	UnexpectedAnswer Class = "UnexpectedAnswer"

	// Redirected is an answer from 300 to 399. It is never followed, and says nothing about the API server: no API server
	// redirects, so the kubeconfig leads to something else.
	Redirected Class = "Redirected"

	// SecretMissing: the Secret, or its key kubeconfig, isn't there.
	SecretMissing Class = "SecretMissing"
	// SecretForbidden: the account of the config, or Autohealer's own, may not get the Secret.
	SecretForbidden Class = "SecretForbidden"
	// KubeconfigInvalid: the kubeconfig can't be read, or has no server or no credentials.
	KubeconfigInvalid Class = "KubeconfigInvalid"
	// KubeconfigUnsafe: it asks for what is never done, such as running a command.
	KubeconfigUnsafe Class = "KubeconfigUnsafe"
	// AddressRefused: the server's address is one that is never dialled, such as a link-local one.
	AddressRefused Class = "AddressRefused"
	// NotRun: the run was given up by us: cancelled, or no longer wanted.
	NotRun Class = "NotRun"
)

// results has the classes that count or might pass by themselves. All others say nothing about the API server.
var results = map[Class]Result{
	OK:              Success,
	TooManyRequests: Transient, Unauthorized: Transient, Forbidden: Transient,
	Resolve: Failure, Dial: Failure, Timeout: Failure, TLS: Failure, Untrusted: Failure, Connection: Failure, ServerError: Failure, UnexpectedAnswer: Failure,
	LeasesExpired: Failure,
}

// Result gives Unknown for a class that isn't listed, too.
func (c Class) Result() Result { return results[c] }

// isPermanent says that it won't pass by itself.
func (c Class) isPermanent() bool {
	return c == Forbidden || c == Unauthorized || c == UnexpectedAnswer || c == Redirected
}

// Counts are what the latest runs of one probe add up to. The zero value is a probe that never ran.
type Counts struct {
	// Successes and Errors in a row; one of them is always 0.
	Successes, Errors int
	// CountedAt is when the latest result was counted.
	CountedAt time.Time
	// LastFailure is the class of the latest run that counted as an error.
	LastFailure Class
	// InconclusiveSince is since when no result was counted although the probe ran; zero when the latest was.
	InconclusiveSince time.Time
	// UntrustedSince is since when the server's certificate wasn't trusted, with no success since; else zero.
	UntrustedSince time.Time
	// LastError is the class of the latest run that didn't succeed, and LastErrorAt when that was; "" when there was none.
	LastError   Class
	LastErrorAt time.Time
}

// minResultTTL is how long counted results stand for the present, or twice the pause between runs where that is longer.
// After a longer one, as when nothing could be counted for a while, three failures of which two are old would be taken for three
// in a row.
const minResultTTL = 5 * time.Minute

func (t Thresholds) resultTTL() time.Duration { return max(minResultTTL, 2*t.RunPeriod) }

// rotationGrace is for how long a certificate that isn't trusted counts nothing: the kubeconfig follows one that is rotated.
const rotationGrace = 5 * time.Minute

// Result is what a run is after those before it.
func (c Counts) Result(o Outcome, now time.Time) Result {
	if o.Class == Untrusted && (c.UntrustedSince.IsZero() || now.Sub(c.UntrustedSince) < rotationGrace) {
		return Transient
	}
	return o.Result()
}

// After gives the counts after a run. Transient and Unknown leave them as they are but for the last error.
func (c Counts) After(o Outcome, t Thresholds, now time.Time) Counts {
	result := c.Result(o, now)
	if o.Class == Untrusted && c.UntrustedSince.IsZero() {
		c.UntrustedSince = now
	}
	if result != Success {
		c.LastError, c.LastErrorAt = o.Class, now
	}
	switch result {
	case Success:
		c.Successes, c.Errors = min(c.Successes+1, t.Success), 0
		c.CountedAt, c.InconclusiveSince, c.UntrustedSince = now, time.Time{}, time.Time{}
	case Failure:
		if now.Sub(c.CountedAt) > t.resultTTL() {
			c.Errors = 0
		}
		c.Successes, c.Errors, c.LastFailure = 0, min(c.Errors+1, t.Failure), o.Class
		c.CountedAt, c.InconclusiveSince = now, time.Time{}
	case Transient, Unknown:
		if c.InconclusiveSince.IsZero() {
			c.InconclusiveSince = now
		}
	}
	return c
}

// undeterminedSince is since when nothing was counted, if that is so long ago that what was doesn't stand for the present any more;
// else zero.
func (c Counts) undeterminedSince(t Thresholds, now time.Time) time.Time {
	if c.InconclusiveSince.IsZero() || now.Sub(c.InconclusiveSince) <= t.resultTTL() {
		return time.Time{}
	}
	return c.InconclusiveSince
}

// Healthy says whether the threshold of successes is reached.
func (c Counts) Healthy(t Thresholds) bool { return c.Successes >= t.Success }

// Unhealthy says whether the threshold of failures is reached.
func (c Counts) Unhealthy(t Thresholds) bool { return c.Errors >= t.Failure }

// reset keeps the last error, for people, and counts from anew.
func (c Counts) reset() Counts {
	return Counts{LastError: c.LastError, LastErrorAt: c.LastErrorAt, UntrustedSince: c.UntrustedSince}
}
