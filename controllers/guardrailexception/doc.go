// Package guardrailexception puts GuardrailExceptions in force on every replica, and tells on the leader which are.
package guardrailexception
