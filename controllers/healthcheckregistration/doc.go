// Package healthcheckregistration checks what the targets of HealthCheckRegistrations depend on, and tells it by conditions on
// the targets.
package healthcheckregistration
