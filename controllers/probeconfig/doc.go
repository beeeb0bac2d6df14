// Package probeconfig acts on ProbeConfigs. An Observer knows configs and namespaces, on every replica; on the leader each
// target's probes run in a Prober, whose runs come to Runs, a TargetReconciler scales what depends on the target, and a
// Reconciler keeps the configs' finalizers and status.
package probeconfig
