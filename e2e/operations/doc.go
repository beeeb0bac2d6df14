// Package operations tests what on-call people do with the kubectl plugin: the plugin's own binary, against a real control
// plane and a manager that works, under the oracle.
package operations
