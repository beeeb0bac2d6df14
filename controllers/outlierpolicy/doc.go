// Package outlierpolicy tells Envoys what OutlierPolicies ask for. Every replica translates all policies and serves the outcome;
// the leader writes statuses.
package outlierpolicy
