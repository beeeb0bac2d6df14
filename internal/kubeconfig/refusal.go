package kubeconfig

// Refusal is why a kubeconfig isn't used. It serves as a condition's reason; Error has the text for people. Neither
// carries anything of the kubeconfig, which is secret.
type Refusal string

const (
	TooLarge         Refusal = "KubeconfigTooLarge"
	Malformed        Refusal = "KubeconfigMalformed"
	AmbiguousContext Refusal = "KubeconfigAmbiguousContext"
	BrokenContext    Refusal = "KubeconfigBrokenContext"
	NoServer         Refusal = "KubeconfigNoServer"
	NotHTTPS         Refusal = "KubeconfigNotHTTPS"
	BadServer        Refusal = "KubeconfigBadServer"
	InsecureTLS      Refusal = "KubeconfigInsecureTLS"
	BadCertificate   Refusal = "KubeconfigBadCertificate"
	BadCredential    Refusal = "KubeconfigBadCredential"
	NoCredential     Refusal = "KubeconfigNoCredential"
	ExecPlugin       Refusal = "KubeconfigExecPlugin"
	AuthProvider     Refusal = "KubeconfigAuthProvider"
	CredentialFile   Refusal = "KubeconfigCredentialFile"
	Impersonation    Refusal = "KubeconfigImpersonation"
	Proxy            Refusal = "KubeconfigProxy"
	Loopback         Refusal = "KubeconfigLoopbackAddress"
	ForbiddenAddress Refusal = "KubeconfigForbiddenAddress"
	// SameServer: two that are to lead to one API server in two ways lead there in one.
	SameServer Refusal = "KubeconfigSameServer"
)

var texts = map[Refusal]string{
	TooLarge:         "the kubeconfig is larger than 256 KiB; leave only one context, cluster and user in it",
	Malformed:        "the Secret's key kubeconfig can't be decoded as a kubeconfig (apiVersion v1, kind Config, no name twice)",
	AmbiguousContext: "the kubeconfig has no current-context and not exactly one context; set current-context",
	BrokenContext:    "the kubeconfig's current context is missing, or names a cluster or user that is missing",
	NoServer:         "the kubeconfig's cluster has no server; set it to https://HOST:PORT",
	NotHTTPS:         "the kubeconfig's server must begin with https://; plain HTTP and Unix sockets are not used",
	BadServer:        "the kubeconfig's server must be https://HOST:PORT, with a path at most: no user, query, fragment or zone, and a host that is an IP address or a DNS name",
	InsecureTLS:      "the kubeconfig sets insecure-skip-tls-verify; set certificate-authority-data instead",
	BadCertificate:   "the kubeconfig's certificate-authority-data, client-certificate-data or client-key-data can't be used: not PEM, no pair, or only one of two",
	BadCredential:    "the kubeconfig's user has a token, user name or password that no HTTP header can carry, or both a token and a user name",
	NoCredential:     "the kubeconfig's user has no token and no client certificate",
	ExecPlugin:       "the kubeconfig's user has an exec plugin, which would run a program in Autohealer; use a token or client certificate",
	AuthProvider:     "the kubeconfig's user has an auth-provider, which would run code in Autohealer; use a token or client certificate",
	CredentialFile:   "the kubeconfig names a file (certificate-authority, client-certificate, client-key or tokenFile), which would be read in Autohealer; put its content into the kubeconfig",
	Impersonation:    "the kubeconfig's user impersonates (as, as-groups, …); use that user's own credentials",
	Proxy:            "the kubeconfig's cluster has a proxy-url; a probe must go the way that it judges, without a proxy",
	Loopback:         "the kubeconfig's server is this machine itself (a loopback address)",
	SameServer:       "both kubeconfigs lead to the same server; give the external one the address that nodes use",
	ForbiddenAddress: "the kubeconfig's server has an address that no API server has: link-local, a cloud's metadata service, multicast, broadcast or unspecified",
}

// Unsafe says that the kubeconfig asks for what is never done; otherwise it is broken or incomplete.
func (r Refusal) Unsafe() bool {
	switch r {
	case NotHTTPS, InsecureTLS, ExecPlugin, AuthProvider, CredentialFile, Impersonation, Proxy:
		return true
	default:
		return r.Address()
	}
}

// Address says that it is about where the connection would go; this can turn out only when it is dialled.
func (r Refusal) Address() bool { return r == Loopback || r == ForbiddenAddress }

// Error says what is wrong and what to write instead.
func (r Refusal) Error() string { return texts[r] }
