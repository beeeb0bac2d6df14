// Package condition decides which node gets which taint from the ConditionSets that match it. It is pure: time comes in
// as an argument, and nothing here reads or writes a cluster. Fleet holds what is known, Decide plans one node, Forecast
// tells what a set would do; admission, controller and CLI all ask here, so that what was foretold is what is done.
package condition
