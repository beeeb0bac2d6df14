// Package cli is the kubectl plugin: `kubectl autohealer VERB`. A verb is a cobra command, thin over the packages below.
package cli
