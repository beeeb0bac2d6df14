// Package ecosystem is what Autohealer knows of what others write on nodes and run there: what a type of condition means, whose a taint's key
// is, and which pods a node can't do without.
package ecosystem
