// Package webhooks is the gate: the HTTP side of admission, thin over the guard, and the one registration for all kinds.
package webhooks
