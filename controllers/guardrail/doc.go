// Package guardrail puts Guardrails in force on every replica, and tells on the leader what became of each.
package guardrail
