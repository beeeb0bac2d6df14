package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"
)

func TestAClientCertificateNamesItsClientToWhoTrustsTheClustersCA(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "client")
	c := &Cluster{ca: ca}
	if err := c.ClientCertificate(dir, "spiffe://test/ns/edge/sa/envoy"); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if len(pair.Leaf.URIs) != 1 || pair.Leaf.URIs[0].String() != "spiffe://test/ns/edge/sa/envoy" {
		t.Errorf("it names %v", pair.Leaf.URIs)
	}
}
