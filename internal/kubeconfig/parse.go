// Package kubeconfig turns a kubeconfig that a tenant wrote into safe access to one API server, or says why not. Of what
// kubeconfigs can say, only server, CA, server name and static credentials are taken over; everything that would run a
// program, read a file, weaken TLS or send the connection elsewhere is refused. Admission and controllers both ask here,
// so a kubeconfig that changes after admission is judged again before it is used.
package kubeconfig

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// maxBytes bounds what is parsed. Kubeconfigs with one context have less than 20 KiB; this leaves room for a long list
// of CAs.
const maxBytes = 256 << 10

// Parse gives the access that a kubeconfig describes. The error is a [Refusal].
func (p Policy) Parse(kubeconfig []byte) (*Access, error) {
	if len(kubeconfig) > maxBytes {
		return nil, TooLarge
	}
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, Malformed // clientcmd's own text may quote credentials
	}
	cluster, user, err := current(config)
	if err != nil {
		return nil, err
	}
	if err := refuseUnsafe(cluster, user); err != nil {
		return nil, err
	}
	server, err := p.server(cluster.Server)
	if err != nil {
		return nil, err
	}
	return newAccess(server, &rest.Config{
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
		BearerToken: user.Token,
		Username:    user.Username,
		Password:    user.Password,
	})
}

// current finds the cluster and user in use. A kubeconfig with one context needs no current-context.
func current(config *api.Config) (*api.Cluster, *api.AuthInfo, error) {
	name := config.CurrentContext
	if name == "" {
		if len(config.Contexts) != 1 {
			return nil, nil, AmbiguousContext
		}
		for only := range config.Contexts {
			name = only
		}
	}
	context := config.Contexts[name]
	if context == nil {
		return nil, nil, BrokenContext
	}
	cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return nil, nil, BrokenContext
	}
	return cluster, user, nil
}

// refuseUnsafe goes over what kubeconfigs can say beyond a server and static credentials.
func refuseUnsafe(cluster *api.Cluster, user *api.AuthInfo) error {
	impersonates := user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0
	files := cluster.CertificateAuthority + user.ClientCertificate + user.ClientKey + user.TokenFile
	for _, check := range []struct {
		unsafe bool
		why    Refusal
	}{
		{user.Exec != nil, ExecPlugin},
		{user.AuthProvider != nil, AuthProvider},
		{files != "", CredentialFile},
		{cluster.InsecureSkipTLSVerify, InsecureTLS},
		{cluster.ProxyURL != "", Proxy},
		{impersonates, Impersonation},
	} {
		if check.unsafe {
			return check.why
		}
	}
	return nil
}

// server checks a server's URL and gives it with a normalised host and an explicit port.
func (p Policy) server(text string) (*url.URL, error) {
	if text == "" {
		return nil, NoServer
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, BadServer
	}
	if u.Scheme != "https" {
		return nil, NotHTTPS
	}
	if u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, BadServer
	}
	host, err := p.host(u.Hostname())
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16)
	if err != nil || port == 0 {
		return nil, BadServer
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.FormatUint(port, 10)), Path: strings.TrimRight(u.Path, "/")}, nil
}

// host normalises a DNS name or an IP address, which has to be allowed; what a name resolves to is checked when dialled.
func (p Policy) host(text string) (string, error) {
	host := strings.TrimSuffix(strings.ToLower(text), ".")
	addr, err := netip.ParseAddr(host)
	if err != nil {
		if len(validation.IsDNS1123Subdomain(host)) > 0 {
			return "", BadServer
		}
		return host, nil
	}
	if addr.Zone() != "" {
		return "", BadServer
	}
	return addr.Unmap().String(), p.Check(addr)
}

// Inspection is what a Secret has under a key. It holds nothing secret.
type Inspection struct {
	// Missing: there is no such key.
	Missing bool
	// Server that the kubeconfig is for; "" where it is refused.
	Server string
	// Refusal is why it is never used; "" when it may be.
	Refusal Refusal
	// Expiry of one that may be used.
	Expiry Expiry
}

// Inspect judges the kubeconfig in a Secret.
func (p Policy) Inspect(secret *corev1.Secret, key string) Inspection {
	value, there := secret.Data[key]
	if !there {
		return Inspection{Missing: true}
	}
	access, err := p.Parse(value)
	if err != nil {
		refusal, _ := errors.AsType[Refusal](err)
		return Inspection{Refusal: cmp.Or(refusal, Malformed)}
	}
	return Inspection{Server: access.Server(), Expiry: access.expiry}
}

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
