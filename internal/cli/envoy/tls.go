package envoy

import (
	"fmt"
	"path/filepath"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// The secrets in ResourcesDir: what Envoy shows, and whom it believes.
const (
	certificateSecret = "autohealer-xds-certificate"
	caSecret          = "autohealer-xds-ca"
)

// socket speaks TLS with the server, and takes it for what it says only with a certificate for its name.
func (t TLS) socket(host string) (*corev3.TransportSocket, error) {
	if t.CertFile == "" || t.KeyFile == "" || t.CAFile == "" {
		return nil, fmt.Errorf("files of a certificate, its key and a CA are needed")
	}
	name := t.serverName(host)
	common := t.context(name)
	common.AlpnProtocols = []string{"h2"} // gRPC servers refuse clients that don't name it
	config, err := anypb.New(&tlsv3.UpstreamTlsContext{Sni: name, CommonTlsContext: common})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}, nil
}

// serverName is the name in the server's certificate.
func (t TLS) serverName(host string) string {
	if t.ServerName == "" {
		return host
	}
	return t.ServerName
}

// context shows Envoy's certificate, and believes whom the CAs call by the server's name.
func (t TLS) context(name string) *tlsv3.CommonTlsContext {
	common := &tlsv3.CommonTlsContext{
		// Envoys speak 1.2 at most as clients, unless they are told.
		TlsParams: &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3},
	}
	if t.ResourcesDir == "" {
		common.TlsCertificates = []*tlsv3.TlsCertificate{t.certificate()}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: t.validation(name)}
		return common
	}
	common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{t.secret(certificateSecret)}
	common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
		DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: serverNames(name)},
		ValidationContextSdsSecretConfig: t.secret(caSecret),
	}}
	return common
}

func (t TLS) certificate() *tlsv3.TlsCertificate {
	return &tlsv3.TlsCertificate{CertificateChain: file(t.CertFile), PrivateKey: file(t.KeyFile)}
}

func (t TLS) validation(name string) *tlsv3.CertificateValidationContext {
	return &tlsv3.CertificateValidationContext{TrustedCa: file(t.CAFile), MatchTypedSubjectAltNames: serverNames(name)}
}

func serverNames(name string) []*tlsv3.SubjectAltNameMatcher {
	return []*tlsv3.SubjectAltNameMatcher{{
		SanType: tlsv3.SubjectAltNameMatcher_DNS,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
	}}
}

func file(name string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: name}}
}

func (t TLS) secret(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{
			Path: t.secretFile(name),
		}},
	}}
}

// Secrets are the files that belong into ResourcesDir, with their contents. Through them Envoy follows the certificates'
// directories: it takes what is replaced there, as Kubernetes replaces the files of a Secret, without a restart.
func Secrets(t TLS) (map[string][]byte, error) {
	certificate, authority := t.certificate(), &tlsv3.CertificateValidationContext{TrustedCa: file(t.CAFile)}
	certificate.WatchedDirectory = &corev3.WatchedDirectory{Path: filepath.Dir(t.CertFile)}
	authority.WatchedDirectory = &corev3.WatchedDirectory{Path: filepath.Dir(t.CAFile)}
	files := map[string][]byte{}
	for _, secret := range []*tlsv3.Secret{
		{Name: certificateSecret, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: certificate}},
		{Name: caSecret, Type: &tlsv3.Secret_ValidationContext{ValidationContext: authority}},
	} {
		resource, err := anypb.New(secret)
		if err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		text, err := YAML(&discovery.DiscoveryResponse{Resources: []*anypb.Any{resource}})
		if err != nil {
			return nil, err
		}
		files[t.secretFile(secret.GetName())] = text
	}
	return files, nil
}
