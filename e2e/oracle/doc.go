// Package oracle watches a running cluster from outside and tells which of Autohealer's invariants were broken, by whom
// and when. It knows nothing of the manager but its user name: it follows the API server's watches and its audit log,
// puts what happened in the order of resource versions, and judges every event.
//
// The invariants hold for every kind of policy. What a kind's writes look like, its adapter knows: a Kind and the Reader that
// it begins.
package oracle
