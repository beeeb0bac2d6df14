// Package dependents tells what HealthCheckRegistrations would do, before they do it: it reads targets and what their checks look
// at, and asks the planner. It writes nothing, and asks no shoot.
package dependents
