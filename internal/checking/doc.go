// Package checking looks at what HealthCheckRegistrations check: it watches the kinds, knows which targets depend on an object,
// and makes the checks. It writes nothing.
package checking
