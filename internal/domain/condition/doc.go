// Package condition decides which node gets which taint from the ConditionSets that match it. It is pure: time comes in
// as an argument, and nothing here reads or writes a cluster. Fleet holds what is known, Decide plans one node, Forecast
// computes what a set would do; admission, controller and CLI share them, so that a forecast equals what is then done.
package condition
