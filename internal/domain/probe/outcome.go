package probe

import "time"

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
	switch r {
	case Success:
		return "success"
	case Failure:
		return "failure"
	case Transient:
		return "transient"
	default:
		return "unknown"
	}
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

// Unusable says that a human must change the Secret or the rights before the probe can run.
func (c Class) Unusable() bool {
	switch c {
	case SecretMissing, SecretForbidden, KubeconfigInvalid, KubeconfigUnsafe, AddressRefused:
		return true
	default:
		return false
	}
}
