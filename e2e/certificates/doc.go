// Package certificates tests where the webhook's serving certificate comes from: that no request is refused while a
// certificate or its CA is replaced, and while two managers are replaced by two with another --cert-provider.
//
// Cert-manager's definitions are those of its module. Its controllers are played by a few lines that sign for real, unless
// the binaries' directory has those controllers themselves, which take some minutes to build:
//
//	go build -C e2e/certificates/certmanager -o "$PWD/bin/certmanager" .
package certificates
