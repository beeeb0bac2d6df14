package probeconfig

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/resourcestack/autohealer/bench/testbed"
)

// apiServers answer probes as API servers do.
type apiServers struct {
	Addresses []string
	CA        []byte
}

func (s apiServers) address(i int) string { return s.Addresses[i%len(s.Addresses)] }

// kubeconfig leads to one of the servers.
func (s apiServers) kubeconfig(server int, token string) ([]byte, error) {
	config := api.NewConfig()
	config.Clusters["a"] = &api.Cluster{Server: "https://" + s.address(server), CertificateAuthorityData: s.CA}
	config.AuthInfos["a"] = &api.AuthInfo{Token: token}
	config.Contexts["a"] = &api.Context{Cluster: "a", AuthInfo: "a"}
	config.CurrentContext = "a"
	return clientcmd.Write(*config)
}

// serve serves with a handler each, until the process ends, or they are stopped.
func serve(handlers ...http.HandlerFunc) (s apiServers, stop func(), err error) {
	certificate, ca, err := testbed.Certificate()
	if err != nil {
		return apiServers{}, nil, err
	}
	s.CA = ca
	var servers []*http.Server
	stop = func() {
		for _, server := range servers {
			_ = server.Close()
		}
	}
	for _, handler := range handlers {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			stop()
			return apiServers{}, nil, fmt.Errorf("listen for probes: %w", err)
		}
		server := &http.Server{
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
			Handler:   handler, ReadHeaderTimeout: time.Minute,
		}
		go func() { _ = server.ServeTLS(listener, "", "") }()
		servers, s.Addresses = append(servers, server), append(s.Addresses, listener.Addr().String())
	}
	return s, stop, nil
}

// serveMany has 16 servers: each more widens the range of local ports, which dials use up.
func serveMany(context.Context, struct{}) (any, error) {
	handlers := make([]http.HandlerFunc, 16)
	for i := range handlers {
		handlers[i] = answerVersion
	}
	s, _, err := serve(handlers...)
	return s, err
}

func answerVersion(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3","gitCommit":"0","gitTreeState":"clean","buildDate":"2026-06-09T00:00:00Z","goVersion":"go1.26","compiler":"gc","platform":"linux/amd64"}`)
}
