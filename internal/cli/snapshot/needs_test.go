package snapshot

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// needing is a file with the answers that policies of a kind are planned by and no others, but for those without.
func needing(t *testing.T, kind, without, items string) *Snapshot {
	t.Helper()
	text := header + "    facts.autohealer.resourcestack.com/trimmed: \"true\"\n    facts.autohealer.resourcestack.com/answers: |-\n"
	for i := range resources {
		if r := &resources[i]; slices.Contains(r.of, kind) && r.Kind != without {
			text += "      " + r.lists() + "\n"
		}
	}
	s, err := Read([]byte(text + "items:\n- {apiVersion: v1, kind: Namespace, metadata: {name: other}}\n" + items))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const probedThings = `
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: db, namespace: shop}, spec: {replicas: 3, selector: {matchLabels: {app: db}}}}
- {apiVersion: v1, kind: Secret, metadata: {name: in, namespace: shop, annotations: {server.facts.autohealer.resourcestack.com/kubeconfig: "db.shop.svc:443"}}, data: {kubeconfig: ""}}
- {apiVersion: v1, kind: Secret, metadata: {name: out, namespace: shop, annotations: {server.facts.autohealer.resourcestack.com/kubeconfig: "example.com:443"}}, data: {kubeconfig: ""}}
`

// TestEachKindIsPlannedByWhatItNeeds and by nothing else: other kinds' policies needn't be known.
func TestEachKindIsPlannedByWhatItNeeds(t *testing.T) {
	const metadata = "metadata: {name: a, namespace: shop}\n"
	into := func(object any, spec string) {
		if err := yaml.Unmarshal([]byte(metadata+spec), object); err != nil {
			t.Fatal(err)
		}
	}
	for kind, plan := range map[string]func(*Facts) error{
		"ConditionSet": func(f *Facts) error {
			cs := &v1alpha1.ConditionSet{}
			into(cs, "spec: {type: T, effect: NoSchedule, taintKey: example.com/a, conditions: {A: {status: true}}}")
			f.ForecastConditionSet(cs, limit.Builtin(), time.Time{})
			return nil
		},
		"WeederConfig": func(f *Facts) error {
			wc := &v1alpha1.WeederConfig{}
			into(wc, "spec: {}")
			f.ForecastWeederConfig(wc, limit.Builtin(), time.Time{})
			return nil
		},
		"ProbeConfig": func(f *Facts) error {
			pc := &v1alpha1.ProbeConfig{}
			into(pc, "spec: {internalKubeConfigSecretName: in, externalKubeConfigSecretName: out, dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: db}, scaleUp: {level: 0}, scaleDown: {level: 0}}]}")
			forecast, err := f.ForecastProbeConfig(t.Context(), pc, limit.Builtin(), time.Time{})
			if err == nil && forecast.WouldScaleDown != 1 {
				t.Errorf("%+v", forecast)
			}
			return err
		},
		"OutlierPolicy": func(f *Facts) error {
			op := &v1alpha1.OutlierPolicy{}
			into(op, "spec: {outlierDetection: {}}")
			f.ForecastOutlierPolicy(op, limit.Builtin(), time.Time{})
			return nil
		},
		"HealthCheckRegistration": func(f *Facts) error {
			hcr := &v1alpha1.HealthCheckRegistration{}
			into(hcr, "spec: {}")
			_, err := f.ForecastRegistration(t.Context(), hcr, limit.Builtin(), time.Time{})
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			s := needing(t, kind, "", probedThings)
			for other := range factsOf(t, s).Planners() {
				if s.Complete(other) && other != kind {
					t.Errorf("it knows %s, too, and so the test shows nothing", other)
				}
			}
			if err := s.Covers(kind); err != nil {
				t.Fatal(err)
			}
			if err := plan(factsOf(t, s)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConditionSetsNeedWhatTheirRulesRead: without, rules would take it for nothing.
func TestConditionSetsNeedWhatTheirRulesRead(t *testing.T) {
	for _, without := range []string{"ConditionSet", "DaemonSet", "Guardrail", "Node"} {
		s := needing(t, "ConditionSet", without, "")
		if err := s.Covers("ConditionSet"); err == nil || !strings.Contains(err.Error(), strings.ToLower(without)+"s") || factsOf(t, s).Synced() {
			t.Errorf("without %ss: %v", without, err)
		}
	}
}
