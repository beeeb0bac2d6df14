package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"time"
)

// stubServers is how many there are: each more widens the range of local ports, which dials use up.
const stubServers = 16

func serveStubs(context.Context, probeLoad) (any, error) {
	certificate, ca, err := stubCertificate()
	if err != nil {
		return nil, err
	}
	load := probeLoad{CA: ca}
	for range stubServers {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		load.Addresses = append(load.Addresses, listener.Addr().String())
		serveStub(listener, certificate, answerVersion)
	}
	return load, nil
}

// serveStub serves until the process ends, or the server is closed.
func serveStub(listener net.Listener, certificate tls.Certificate, handler http.HandlerFunc) *http.Server {
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Handler:   handler, ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return server
}

// answerVersion answers as an API server does.
func answerVersion(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3","gitCommit":"0","gitTreeState":"clean","buildDate":"2026-06-09T00:00:00Z","goVersion":"go1.26","compiler":"gc","platform":"linux/amd64"}`)
}

func stubCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, ca, err
}
