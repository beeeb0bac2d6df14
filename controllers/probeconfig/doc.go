// Package probeconfig acts on ProbeConfigs. An Observer knows configs, namespaces and targets, on every replica, and has each target
// learn what happens to it (tell). On the leader a target's probes run in a Prober, whose runs come to Runs; a TargetReconciler supplies
// the probes and scales what depends on the target, a Keeper keeps the configs' finalizers and statuses, and an OrphanReconciler gives
// back what was taken for configs that are gone.
package probeconfig
