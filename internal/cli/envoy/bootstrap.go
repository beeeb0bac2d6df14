// Package envoy makes the configuration with which an Envoy gets its clusters and endpoints from Autohealer.
package envoy

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"text/template"
	"unicode/utf8"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // what the templates name by its type
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Options of a bootstrap.
type Options struct {
	// Server is Autohealer's xDS address, host:port.
	Server string
	// NodeID and NodeCluster are what Envoy calls itself, in its logs and to others; Autohealer doesn't read them.
	NodeID, NodeCluster string
	// AdminPort on 127.0.0.1; 0 for any.
	AdminPort uint32
	// EjectionLog is the file where Envoy logs ejections, one JSON object a line; "" for none.
	EjectionLog string
	// EjectionsPort is where Autohealer may ask whom Envoy has ejected; 0 for nowhere. It needs TLS and an admin page.
	EjectionsPort uint32
	// EjectionsAddress has that port; "::" takes connections of both families.
	EjectionsAddress string
	// Plaintext speaks without TLS; what follows has no meaning then.
	Plaintext bool
	TLS       TLS
}

// TLS is how Envoy and Autohealer know each other. Files are PEM, and Envoy's to read.
type TLS struct {
	CertFile, KeyFile, CAFile string
	// ServerName is a DNS name in the server's certificate; "" for the host of Options.Server.
	ServerName string
	// ResourcesDir is where the files of Secrets are; "" has Envoy read certificates once, at its start.
	ResourcesDir string
}

// File of a secret, in the directory of resources.
func (t TLS) File(secret string) string { return filepath.Join(t.ResourcesDir, secret+".yaml") }

//go:embed templates.yaml.tmpl
var source string

var templates = template.Must(template.New("").Funcs(template.FuncMap{"text": text, "dir": filepath.Dir}).Parse(source))

// text is a text as YAML takes it, whatever is in it.
func text(value string) (string, error) {
	if !utf8.ValidString(value) {
		return "", fmt.Errorf("%q isn't UTF-8", value)
	}
	quoted, err := json.Marshal(value)
	return string(quoted), err
}

// fill reads a message out of a template.
func fill(m proto.Message, name string, data any) error {
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, data); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	asJSON, err := yaml.YAMLToJSON(out.Bytes())
	if err == nil {
		err = protojson.Unmarshal(asJSON, m)
	}
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return nil
}

// YAML writes a message as Envoy reads it from a file ending in .yaml.
func YAML(m proto.Message) ([]byte, error) {
	asJSON, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	out, err := yaml.JSONToYAML(asJSON)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out, nil
}

// Bootstrap gives the configuration.
func Bootstrap(o Options) (*bootstrapv3.Bootstrap, error) {
	host, port, err := splitAddress(o.Server)
	if err != nil {
		return nil, err
	}
	with := struct {
		Options
		Host string
		Port uint32
		// Discovery is how Envoy finds the host.
		Discovery string
		// EitherFamily takes connections of IPv4 at an address of IPv6.
		EitherFamily bool
	}{Options: o, Host: host, Port: port, Discovery: "STRICT_DNS"}
	if _, err := netip.ParseAddr(host); err == nil {
		with.Discovery = "STATIC"
	}
	with.TLS.ServerName = cmp.Or(o.TLS.ServerName, host)
	if !o.Plaintext && (o.TLS.CertFile == "" || o.TLS.KeyFile == "" || o.TLS.CAFile == "") {
		return nil, errors.New("files of a certificate, its key and a CA are needed")
	}
	if o.EjectionsPort != 0 {
		ip, err := o.ejections()
		if err != nil {
			return nil, err
		}
		with.EjectionsAddress, with.EitherFamily = ip.String(), ip == netip.IPv6Unspecified()
	}
	b := &bootstrapv3.Bootstrap{}
	if err := fill(b, "bootstrap", with); err != nil {
		return nil, err
	}
	if err := b.ValidateAll(); err != nil {
		return nil, err
	}
	return b, nil
}

// ejections is the address at which Autohealer may ask whom Envoy has ejected: a listener in front of two of the admin page's paths,
// for who shows the server's certificate.
func (o Options) ejections() (netip.Addr, error) {
	switch {
	case o.Plaintext:
		return netip.Addr{}, errors.New("the port for ejections needs TLS: without, everyone who reaches it may ask")
	case o.AdminPort == 0:
		return netip.Addr{}, errors.New("the port for ejections needs a port of the admin page that is known")
	}
	ip, err := netip.ParseAddr(o.EjectionsAddress)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the address of the port for ejections: %w", err)
	}
	return ip, nil
}

func splitAddress(address string) (string, uint32, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("the server's address: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || host == "" {
		return "", 0, fmt.Errorf("the server's address %q isn't HOST:PORT", address)
	}
	return host, uint32(port), nil
}

// Secrets are the files that belong into ResourcesDir, with their contents. Through them Envoy follows the certificates'
// directories: it takes what is replaced there, as Kubernetes replaces the files of a Secret, without a restart.
func Secrets(t TLS) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, secret := range []string{"autohealer-xds-certificate", "autohealer-xds-ca"} {
		resources := &discovery.DiscoveryResponse{}
		if err := fill(resources, secret, t); err != nil {
			return nil, err
		}
		content, err := YAML(resources)
		if err != nil {
			return nil, err
		}
		files[t.File(secret)] = content
	}
	return files, nil
}
