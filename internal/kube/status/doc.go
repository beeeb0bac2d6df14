// Package status is what the status of every kind has in common: which conditions there are and what they say, how often
// it is written, and the Events that tell of a condition that turned.
package status
