// Package actuate holds Autohealer's hands: the only code that changes objects that aren't its own. Every harmful change
// takes a guard.Validated, which only the rules can give; what a record on the changed object shows to be ours may be
// undone without.
package actuate
