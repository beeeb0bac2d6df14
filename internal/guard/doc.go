// Package guard judges policies by CEL rules: at admission, before they are stored, and again at run time, before
// anything acts on them. The rules are data (catalog/), compiled as the API server compiles its own: types are checked
// against the CRD, values are executed dynamically, cost is bounded. Whatever changes the cluster takes a Validated,
// which only this package can make.
package guard
