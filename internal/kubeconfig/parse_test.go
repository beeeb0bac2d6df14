package kubeconfig

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const usable = `apiVersion: v1
kind: Config
current-context: shoot
contexts:
- {name: shoot, context: {cluster: shoot, user: prober}}
clusters:
- {name: shoot, cluster: {server: "https://api.shoot.example:6443"}}
users:
- {name: prober, user: {token: s3cret}}
`

// edited is the usable kubeconfig with some text replaced.
func edited(t testing.TB, oldNew ...string) string {
	t.Helper()
	text := usable
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("the usable kubeconfig has no %q", oldNew[i])
		}
		text = strings.Replace(text, oldNew[i], oldNew[i+1], 1)
	}
	return text
}

func TestWhyAKubeconfigIsRefused(t *testing.T) {
	const server, user = `server: "https://api.shoot.example:6443"`, `token: s3cret`
	certificate, key := keyPair(t)
	tests := []struct {
		name   string
		config string
		want   Refusal
	}{
		{"too long", usable + "#" + strings.Repeat("x", 300<<10), "KubeconfigTooLarge"},
		{"not YAML", "\t{", "KubeconfigMalformed"},
		{"another kind", edited(t, "kind: Config", "kind: Secret"), "KubeconfigMalformed"},
		{"a user twice", usable + "- {name: prober, user: {token: other}}\n", "KubeconfigMalformed"},
		{"empty", "", "KubeconfigAmbiguousContext"},
		{"two contexts, none of them current", edited(t, "current-context: shoot\n", "", "contexts:\n", "contexts:\n- {name: other, context: {cluster: shoot, user: prober}}\n"), "KubeconfigAmbiguousContext"},
		{"a current context that is missing", edited(t, "current-context: shoot", "current-context: other"), "KubeconfigBrokenContext"},
		{"a cluster that is missing", edited(t, "cluster: shoot,", "cluster: other,"), "KubeconfigBrokenContext"},
		{"a user that is missing", edited(t, "user: prober}", "user: other}"), "KubeconfigBrokenContext"},
		{"no server", edited(t, server, ""), "KubeconfigNoServer"},
		{"plain HTTP", edited(t, server, `server: "http://api.shoot.example"`), "KubeconfigNotHTTPS"},
		{"no scheme", edited(t, server, `server: "api.shoot.example:443"`), "KubeconfigNotHTTPS"},
		{"a Unix socket", edited(t, server, `server: "unix:///run/api.sock"`), "KubeconfigNotHTTPS"},
		{"a user in the URL", edited(t, server, `server: "https://a:b@api.shoot.example"`), "KubeconfigBadServer"},
		{"a query", edited(t, server, `server: "https://api.shoot.example/?a=b"`), "KubeconfigBadServer"},
		{"no host", edited(t, server, `server: "https://:443"`), "KubeconfigBadServer"},
		{"port 0", edited(t, server, `server: "https://api.shoot.example:0"`), "KubeconfigBadServer"},
		{"a port too large", edited(t, server, `server: "https://api.shoot.example:65536"`), "KubeconfigBadServer"},
		{"a zone", edited(t, server, `server: "https://[fe80::1%25eth0]"`), "KubeconfigBadServer"},
		{"a host that is no DNS name", edited(t, server, `server: "https://api_shoot!"`), "KubeconfigBadServer"},
		{"a metadata service", edited(t, server, `server: "https://169.254.169.254"`), "KubeconfigForbiddenAddress"},
		{"this machine", edited(t, server, `server: "https://127.0.0.1:6443"`), "KubeconfigLoopbackAddress"},
		{"this machine as IPv6", edited(t, server, `server: "https://[::1]:6443"`), "KubeconfigLoopbackAddress"},
		{"TLS not verified", edited(t, server, server+", insecure-skip-tls-verify: true"), "KubeconfigInsecureTLS"},
		{"a CA that is no certificate", edited(t, server, server+", certificate-authority-data: aGVsbG8="), "KubeconfigBadCertificate"},
		{"a certificate without key", edited(t, user, "client-certificate-data: "+certificate), "KubeconfigBadCertificate"},
		{"a key without certificate", edited(t, user, "client-key-data: "+key), "KubeconfigBadCertificate"},
		{"a certificate that isn't one", edited(t, user, "client-certificate-data: "+key+", client-key-data: "+key), "KubeconfigBadCertificate"},
		{"a token with a line break", edited(t, user, `token: "a\nb"`), "KubeconfigBadCredential"},
		{"two ways to authenticate", edited(t, user, user+", username: a, password: b"), "KubeconfigBadCredential"},
		{"no credentials", edited(t, "{"+user+"}", "{}"), "KubeconfigNoCredential"},
		{"an exec plugin", edited(t, user, "exec: {apiVersion: client.authentication.k8s.io/v1, command: id, interactiveMode: Never}"), "KubeconfigExecPlugin"},
		{"an exec plugin beside a token", edited(t, user, user+", exec: {apiVersion: client.authentication.k8s.io/v1, command: id, interactiveMode: Never}"), "KubeconfigExecPlugin"},
		{"an auth provider", edited(t, user, user+", auth-provider: {name: oidc}"), "KubeconfigAuthProvider"},
		{"a token in a file", edited(t, user, user+", tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"), "KubeconfigCredentialFile"},
		{"a certificate in a file", edited(t, user, user+", client-certificate: a.crt"), "KubeconfigCredentialFile"},
		{"a key in a file", edited(t, user, user+", client-key: a.key"), "KubeconfigCredentialFile"},
		{"a CA in a file", edited(t, server, server+", certificate-authority: /etc/passwd"), "KubeconfigCredentialFile"},
		{"impersonation", edited(t, user, user+", as: admin"), "KubeconfigImpersonation"},
		{"impersonation of a group", edited(t, user, user+", as-groups: [system:masters]"), "KubeconfigImpersonation"},
		{"impersonation by UID", edited(t, user, user+`, as-uid: "1"`), "KubeconfigImpersonation"},
		{"impersonation of extras", edited(t, user, user+`, as-user-extra: {a: [b]}`), "KubeconfigImpersonation"},
		{"a proxy", edited(t, server, server+`, proxy-url: "socks5://10.0.0.1"`), "KubeconfigProxy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			access, err := Policy{}.Parse([]byte(tt.config))
			var refusal Refusal
			if access != nil || !errors.As(err, &refusal) || refusal != tt.want {
				t.Fatalf("refused with %v, want %s", err, tt.want)
			}
			if refusal.Error() == "" || strings.Contains(refusal.Error(), "s3cret") {
				t.Errorf("the text is %q", refusal.Error())
			}
		})
	}
}

func TestWhatAKubeconfigGives(t *testing.T) {
	certificate, key := keyPair(t)
	tests := []struct {
		name, config, server, url, authorization string
	}{
		{"a token", usable, "api.shoot.example:6443", "https://api.shoot.example:6443/version", "Bearer s3cret"},
		{"its only context", edited(t, "current-context: shoot\n", ""), "api.shoot.example:6443", "https://api.shoot.example:6443/version", "Bearer s3cret"},
		{"an exec plugin of another user", usable + "- {name: other, user: {exec: {command: id}}}\n", "api.shoot.example:6443", "https://api.shoot.example:6443/version", "Bearer s3cret"},
		{"no port", edited(t, ":6443", ""), "api.shoot.example:443", "https://api.shoot.example:443/version", "Bearer s3cret"},
		{"capitals and a dot", edited(t, "api.shoot.example", "API.Shoot.example."), "api.shoot.example:6443", "https://api.shoot.example:6443/version", "Bearer s3cret"},
		{"a path", edited(t, ":6443", ":6443/k8s/clusters/c-1/"), "api.shoot.example:6443", "https://api.shoot.example:6443/k8s/clusters/c-1/version", "Bearer s3cret"},
		{"an IPv6 address", edited(t, "api.shoot.example", "[2001:DB8:0::1]"), "[2001:db8::1]:6443", "https://[2001:db8::1]:6443/version", "Bearer s3cret"},
		{"user and password", edited(t, "token: s3cret", "username: a, password: b"), "api.shoot.example:6443", "https://api.shoot.example:6443/version", "Basic YTpi"},
		{"a client certificate", edited(t, "token: s3cret", "client-certificate-data: "+certificate+", client-key-data: "+key), "api.shoot.example:6443", "https://api.shoot.example:6443/version", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			access, err := Policy{}.Parse([]byte(tt.config))
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			header := http.Header{}
			access.Authorize(header)
			if access.Server() != tt.server || access.URL("/version").String() != tt.url || header.Get("Authorization") != tt.authorization {
				t.Errorf("server %s, URL %s, authorization %q", access.Server(), access.URL("/version"), header.Get("Authorization"))
			}
		})
	}
}

func TestNothingPrintsCredentials(t *testing.T) {
	access, err := Policy{}.Parse([]byte(usable))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%s", "%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(verb, access); text != "https://api.shoot.example:6443" {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

// keyPair is a client certificate and its key, PEM in base64.
func keyPair(t testing.TB) (certificate, key string) {
	t.Helper()
	certificatePEM, keyPEM, err := certutil.GenerateSelfSignedCertKey("prober", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keyutil.ParsePrivateKeyPEM(keyPEM); err != nil {
		t.Fatal(err)
	}
	first, _ := pem.Decode(certificatePEM)
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(first)), base64.StdEncoding.EncodeToString(keyPEM)
}

// Whatever a tenant writes: no panic, nothing but refusals, and what is accepted is safe.
func FuzzParse(f *testing.F) {
	f.Add([]byte(usable))
	f.Add([]byte(strings.ReplaceAll(usable, "token: s3cret", "exec: {command: id}")))
	f.Add([]byte(strings.ReplaceAll(usable, "api.shoot.example", "[::ffff:169.254.169.254]")))
	f.Add([]byte(`{"kind":"Config","apiVersion":"v1","contexts":[{"name":"","context":{"cluster":"","user":""}}],"clusters":[{"name":"","cluster":{"server":"https://a"}}],"users":[{"name":"","user":{"token":"x"}}]}`))
	f.Add([]byte("a: &a [*a, *a]\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		access, err := Policy{}.Parse(raw)
		if err != nil {
			if refusal, ok := err.(Refusal); !ok || texts[refusal] == "" { //nolint:errorlint // nothing may be wrapped
				t.Fatalf("refused with %T %v", err, err)
			}
			return
		}
		u := access.URL("/version")
		if u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Port() == "" || u.Hostname() == "" {
			t.Fatalf("accepted %s", u)
		}
		if access.tls.InsecureSkipVerify {
			t.Fatal("accepted TLS that isn't verified")
		}
		again, err := Policy{}.server(u.Scheme + "://" + u.Host)
		if err != nil || again.Host != access.Server() {
			t.Fatalf("%s normalises to %v, %v", u.Host, again, err)
		}
	})
}
