// Package envoys asks Envoys whom they have ejected. Both sides show certificates: an Envoy the one with which it gets its
// configuration, the manager the one with which it serves that.
package envoys
