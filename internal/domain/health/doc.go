// Package health decides which conditions an object gets from checks of the objects that depend on it. It is pure: time comes
// in as an argument, and nothing here reads or writes a cluster. The checks that come with Autohealer judge an object
// each; Aggregate makes one verdict of all that are about one condition type; Next turns it into a condition, and Patch says
// how to write that without touching anyone else's.
package health
