// Package check tells without a cluster what the API server, the admission policy and the webhook would say of an object:
// the CRDs' schema and rules by the API server's own code, then the catalogue's rules by the webhook's own engine.
package check
