package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExplainTellsWhatIsntKnown and takes none of it for something that doesn't exist.
func TestExplainTellsWhatIsntKnown(t *testing.T) {
	const (
		node    = `{apiVersion: v1, kind: Node, metadata: {name: a, annotations: {autohealer.resourcestack.com/owned-taints: '{"taints":[{"set":"1","name":"disk","key":"example.com/disk","effect":"NoSchedule","since":"2026-11-21T11:00:00Z"}]}'}}, spec: {taints: [{key: example.com/disk, effect: NoSchedule}]}}`
		pod     = `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {containers: [{name: main}]}, status: {containerStatuses: [{name: main, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}}]}}`
		service = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}`
		scaled  = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: db, namespace: shop, annotations: {autohealer.resourcestack.com/original-replicas: '{"replicas":3,"policy":"shop/main","owner":"1","since":"2026-11-21T11:00:00Z"}'}}, spec: {replicas: 0, selector: {matchLabels: {app: db}}}}`
	)
	for name, c := range map[string]struct{ item, what, want, never string }{
		"a claim":      {node, "node/a", "Not all is known of what ConditionSets do: the facts don't say which conditionsets, guardrails and daemonsets there are", "does not exist"},
		"the taint":    {node, "node/a", "ConditionSet disk, which isn't among the facts: taint example.com/disk:NoSchedule since 2026-11-21T11:00:00Z", "undone"},
		"another node": {strings.Replace(node, "owned-taints", "other", 1), "node/a", "Not all is known of what ConditionSets do", "No ConditionSet"},
		"a pod":        {pod, "pod/a", "Not all is known of what WeederConfigs do: the facts don't say which weederconfigs,", "No WeederConfig"},
		"its Envoys":   {pod, "pod/a", "Not all is known of what OutlierPolicies do: the facts don't say which daemonsets, outlierpolicies,", "No WeederConfig"},
		"a Service":    {service, "service/web", "Not all is known of what WeederConfigs do: the facts don't say which weederconfigs,", "No WeederConfig"},
		"a record":     {scaled, "deployment/db", "ProbeConfig shop/main, which isn't among the facts or no longer names it: scaled down from 3 replicas", "does not exist"},
		"its config":   {scaled, "deployment/db", "Not all is known of what ProbeConfigs do: the facts don't say which daemonsets, probeconfigs,", "Autohealer scales it up soon"},
		"another kind": {service, "worker/a", "worker/a: whether a ProbeConfig scales this kind, or a HealthCheckRegistration is about it, isn't known: the facts don't say which", "no ProbeConfig scales"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "facts.yaml")
			text := "apiVersion: v1\nkind: List\nmetadata: {annotations: {facts.autohealer.resourcestack.com/taken-at: 2026-11-21T12:00:00Z}}\nitems: [" + c.item + "]\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, stdout, stderr := run(t, "", "explain", "-n", "shop", c.what, "--facts", file)
			if known := stdout + stderr; !strings.Contains(known, c.want) || strings.Contains(known, c.never) {
				t.Errorf("want %q and never %q, got\n%s", c.want, c.never, known)
			}
		})
	}
}
