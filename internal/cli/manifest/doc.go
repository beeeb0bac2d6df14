// Package manifest reads Kubernetes objects from YAML and JSON as kubectl does, and knows the line of every field. What a
// map would silently merge, it reports: the API server never sees the key that lost.
package manifest
