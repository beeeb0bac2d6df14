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
