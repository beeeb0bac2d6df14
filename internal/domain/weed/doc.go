// Package weed decides which pods are deleted after a Service that they depend on recovered, so that they restart now and
// not after the kubelet's back-off. It is pure: time comes in as an argument, and nothing here reads or writes a cluster.
// Yard holds what is known, PlanPod plans one pod, Forecast tells what a WeederConfig would do; admission, controller and
// CLI all ask here, so that what was foretold is what is done.
package weed
