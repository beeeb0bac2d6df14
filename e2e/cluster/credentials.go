package cluster

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
)

// users are the components' identities. All are cluster admins: RBAC of Kubernetes' own parts isn't what is tested, and a controller manager with a service account per controller starts seconds later.
// Each has its own name, so that the audit log tells them apart, and a token: the API server verifies a client's certificate anew at
// each request, which takes a tenth of its time.
var users = map[string]Component{
	"kwok":                           Kwok,
	"system:kube-controller-manager": ControllerManager,
	"system:kube-scheduler":          Scheduler,
}

// writeFiles writes everything that the components read and sets c.Config and c.client.
func (c *Cluster) writeFiles() error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	server, err := ca.server()
	if err != nil {
		return err
	}
	serviceAccounts, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return fmt.Errorf("generate the service accounts' key: %w", err)
	}
	c.ca, c.CACert = ca, ca.pem()
	for path, content := range map[string][]byte{
		c.path("pki", "ca.crt"):               c.CACert,
		c.path("pki", "apiserver.crt"):        server.cert,
		c.path("pki", "apiserver.key"):        server.key,
		c.path("pki", "service-accounts.key"): serviceAccounts,
		c.path("kwok.yaml"):                   kwokConfig,
		c.path("audit-policy.yaml"):           auditPolicy,
		c.path("logs", ".keep"):               nil,
		c.path("run", ".keep"):                nil,
		c.AuditLog:                            nil, // there for readers before the API server's first line
	} {
		if err := writeFile(path, content); err != nil {
			return err
		}
	}
	kubeconfigs := map[string]string{"admin": c.Kubeconfig}
	for user, component := range users {
		kubeconfigs[user] = c.path("pki", string(component)+".kubeconfig")
	}
	var tokens strings.Builder
	for user, path := range kubeconfigs {
		token := rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,,system:masters\n", token, user)
		if err := c.writeKubeconfig(path, user, token); err != nil {
			return err
		}
	}
	if err := writeFile(c.tokens(), []byte(tokens.String())); err != nil {
		return err
	}
	return c.connect()
}

// tokens is the file with those of the cluster's admins.
func (c *Cluster) tokens() string { return c.path("pki", "tokens.csv") }

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

func (c *Cluster) writeKubeconfig(path, user, token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["autohealer"] = &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: c.CACert}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["autohealer"] = &clientcmdapi.Context{Cluster: "autohealer", AuthInfo: user}
	config.CurrentContext = "autohealer"
	if err := clientcmd.WriteToFile(*config, path); err != nil { // with mode 0600
		return fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return nil
}

func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read the admin's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 10000, 10000
	c.Config = config
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return nil
}

// closeIdleConnections closes those of every client made from c.Config: client-go shares one transport among them.
func (c *Cluster) closeIdleConnections() {
	if transport, err := rest.TransportFor(c.Config); err == nil {
		utilnet.CloseIdleConnectionsFor(transport)
	}
}

// ServiceAccountKubeconfig writes a kubeconfig file for a service account that exists, with a token for 24 hours.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (path string, err error) {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 60 * 60)},
	}
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token for service account %s/%s: %w", namespace, name, err)
	}
	path = c.path("service-accounts", namespace, name+".kubeconfig")
	return path, c.writeKubeconfig(path, name, token.Status.Token)
}

// ClientCertificate writes the certificate of a client that a URI names, signed by CACert's CA, and its key into a directory: tls.crt and
// tls.key, as a Secret has them. It is for servers of others; the API server takes tokens alone.
func (c *Cluster) ClientCertificate(dir, uri string) error {
	name, err := url.Parse(uri)
	if err != nil {
		return fmt.Errorf("name a client: %w", err)
	}
	pair, err := c.ca.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "client"}, URIs: []*url.URL{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	return errors.Join(writeFile(filepath.Join(dir, "tls.crt"), pair.cert), writeFile(filepath.Join(dir, "tls.key"), pair.key))
}
