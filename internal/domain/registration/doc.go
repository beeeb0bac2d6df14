// Package registration reads HealthCheckRegistrations, and judges by them what a target depends on. It is pure: it is given the
// objects, and the time.
package registration
