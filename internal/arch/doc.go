// Package arch is tests only: they keep the rooms of the code apart and every kind complete. Each test is also run over
// the tree in testdata/tree.txtar, which breaks every rule, so that a test that finds nothing any more fails.
//
// They read the source with go/build and go/parser instead of asking `go list` in a subprocess: the test cache notices
// files that a test reads, and would give a stale pass otherwise.
package arch
