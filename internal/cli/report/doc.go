// Package report writes what a check found, for people and for the programs that read it in continuous integration.
package report
