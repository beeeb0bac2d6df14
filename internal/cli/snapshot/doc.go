// Package snapshot is a cluster at one moment, as far as planners look at it: read live once, or from a file that was
// written from it. The same snapshot gives the same plan, wherever and whenever it is asked.
package snapshot
