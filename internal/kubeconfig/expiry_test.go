package kubeconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// until is a certificate that is valid until then, signed by itself, and its key, both PEM.
func until(t *testing.T, end time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func TestWhenAKubeconfigExpires(t *testing.T) {
	early, late := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	first, firstKey := until(t, early)
	second, secondKey := until(t, late)
	text := base64.StdEncoding.EncodeToString
	own := func(certificate, key []byte) string {
		return "client-certificate-data: " + text(certificate) + ", client-key-data: " + text(key)
	}
	trusting := func(authorities []byte) []string {
		return []string{`:6443"`, `:6443", certificate-authority-data: ` + text(authorities)}
	}
	const token = "token: s3cret"
	for name, tt := range map[string]struct {
		edits []string
		want  Expiry
	}{
		"a token, and the system's authorities":       {nil, Expiry{}},
		"a client certificate":                        {[]string{token, own(first, firstKey)}, Expiry{"client certificate", early}},
		"one with another that signed it":             {[]string{token, own(append(second, first...), secondKey)}, Expiry{"client certificate", late}},
		"beside a token, which the server takes then": {[]string{token, token + ", " + own(first, firstKey)}, Expiry{}},
		"one authority":                               {trusting(first), Expiry{"last certificate authority", early}},
		"two, as while one is rotated":                {trusting(append(second, first...)), Expiry{"last certificate authority", late}},
		"a client certificate that ends first":        {append(trusting(second), token, own(first, firstKey)), Expiry{"client certificate", early}},
		"an authority that ends first":                {append(trusting(first), token, own(second, secondKey)), Expiry{"last certificate authority", early}},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{"kubeconfig": []byte(edited(t, tt.edits...))}}
			found := Policy{}.Inspect(secret, "kubeconfig")
			if found.Refusal != "" || found.Expiry.Of != tt.want.Of || !found.Expiry.At.Equal(tt.want.At) {
				t.Errorf("%+v, want %+v", found, tt.want)
			}
		})
	}
}
