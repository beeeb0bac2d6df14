package survey

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
)

// able is an account that may do everything; others may nothing.
const able = "able"

type onlyAble struct{}

func (onlyAble) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if strings.HasSuffix(a.GetUser().GetName(), ":"+able) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// weeders plans on a state in which Autohealer's own pod can be selected.
func weeders(t *testing.T, wc *v1alpha1.WeederConfig) []any {
	t.Helper()
	y := weeder.NewState(limit.Builtin(), "autohealer-system")
	y.ObserveNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "autohealer-system", Labels: map[string]string{"shoot": "true"}}}, timing.Moment{})
	y.ObservePod(weeder.ReadPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "autohealer-system", Name: "autohealer-0", UID: "p", Labels: map[string]string{"app.kubernetes.io/name": "autohealer", "app": "api"},
	}}), timing.Moment{})
	live := y.Forecast(wc, limit.Builtin(), timing.Moment{})
	return []any{weeder.TermsOf(wc, "autohealer-system"), live}
}

// probers plans in a town in which everything is amiss that can be.
func probers(t *testing.T, pc *v1alpha1.ProbeConfig) []any {
	t.Helper()
	w := newTown()
	w.namespaces = map[string]labels.Set{"shop": {"shoot": "true"}, "autohealer-system": {"shoot": "true"}}
	w.kubeconfigs = map[string]probe.KubeconfigFacts{
		"in": {Server: "kube-apiserver.shop.svc:443"}, "out": {Server: "kube-apiserver.shop.svc:443"}, "unsafe": {Unsafe: "runs a command"}, "another": {Server: "api.shop.example:443"},
	}
	w.dependents["agent"], w.dependents["healer"] = probe.DependentFacts{Unscalable: true}, probe.DependentFacts{Pods: "app=healer"}
	w.configs = []v1alpha1.ProbeConfig{*probeConfig("shop", "other", "apiserver")}
	live, err := (&Survey{Cluster: w, Objects: w, Rights: onlyAble{}, OwnNamespace: "autohealer-system"}).Forecast(t.Context(), pc, limit.Builtin(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return []any{probe.TermsOf(pc, "autohealer-system"), live}
}

// outliers plans for a Service of bytes that another policy has, too.
func outliers(t *testing.T, op *v1alpha1.OutlierPolicy) []any {
	t.Helper()
	tcp := "tcp"
	target := []v1alpha1.OutlierTargetReference{{Kind: "Service", Name: "bytes"}}
	return []any{outlier.ForecastOf(op, outlier.Objects{
		Services: []*corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bytes"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432, AppProtocol: &tcp}}},
		}},
		Policies: []*v1alpha1.OutlierPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "z"}, Spec: v1alpha1.OutlierPolicySpec{TargetRefs: target},
		}},
	}, "autohealer-system")}
}

// planOf has a plan's fields by their names in rules.
func planOf(parts []any) map[string]any {
	plan := map[string]any{}
	for _, part := range parts {
		v := reflect.ValueOf(part)
		for f := range v.Type().Fields() {
			plan[strings.ToLower(f.Name[:1])+f.Name[1:]] = v.FieldByIndex(f.Index).Interface()
		}
	}
	return plan
}

// planned reads a manifest and plans it.
func planned[T any](t *testing.T, ask func(*testing.T, *T) []any, namespace string, spec map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "x"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	object := new(T)
	if err := json.Unmarshal(text, object); err != nil {
		t.Fatal(err)
	}
	return planOf(ask(t, object))
}

type spec = map[string]any

// decided changes each field of a spec in each of the bases, by namespace, and gives the fields that decide what of plan.
func decided[T any](t *testing.T, ask func(*testing.T, *T) []any, others spec, bases map[string][]spec) map[string]map[string]bool {
	t.Helper()
	of := map[string]map[string]bool{}
	whole, _ := reflect.TypeFor[T]().FieldByName("Spec")
	for f := range whole.Type.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if others[name] == nil {
			t.Errorf("there is no other value for spec.%s", name)
		}
		for namespace, all := range bases {
			for _, base := range all {
				changed := maps.Clone(base)
				changed[name] = others[name]
				note(of, "spec."+name, planned(t, ask, namespace, base), planned(t, ask, namespace, changed))
			}
		}
	}
	return of
}

// note notes what of plan a field changed.
func note(of map[string]map[string]bool, field string, was, is map[string]any) {
	for name := range was {
		if of[name] == nil {
			of[name] = map[string]bool{}
		}
		of[name][field] = of[name][field] || !reflect.DeepEqual(was[name], is[name])
	}
}

// compare finds what a rule's list lacks, and what it has for nothing.
func compare(t *testing.T, rule guard.RuleInfo, decided map[string]map[string]bool) {
	t.Helper()
	named, decisive := slices.Clone(rule.RatchetOn), map[string]bool{}
	for _, path := range rule.Reads {
		if field, ofObject := strings.CutPrefix(path, "object."); ofObject {
			named, decisive[field] = append(named, field), true
		}
		for field, decides := range decided[strings.TrimPrefix(path, "plan.")] {
			decisive[field] = decisive[field] || decides
		}
	}
	for field, decides := range decisive {
		if decides && !slices.Contains(named, field) {
			t.Errorf("%s: %s decides too, and isn't in ratchetOn", rule.ID, field)
		}
	}
	for _, field := range rule.RatchetOn {
		if !decisive[field] {
			t.Errorf("%s: %s is in ratchetOn, and decides nothing here", rule.ID, field)
		}
	}
}

// ratchets compares the rules of a kind with what decides their plan.
func ratchets(t *testing.T, kind string, decided map[string]map[string]bool) {
	t.Helper()
	g, err := guard.New(guard.Options{OwnNamespace: "autohealer-system"})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range g.Rules(kind) {
		if len(rule.RatchetOn) > 0 {
			compare(t, rule, decided)
		}
	}
}

// TestRulesRatchetOnAllThatDecides: a field that a list lacks would let an update that begins a violation pass as an old one.
func TestRulesRatchetOnAllThatDecides(t *testing.T) {
	shoots, sick := spec{"matchLabels": spec{"shoot": "true"}}, spec{"matchLabels": spec{"shoot": "a b"}}
	torn := spec{"matchLabels": spec{"shoot": "a"}, "matchExpressions": []any{spec{"key": "shoot", "operator": "DoesNotExist"}}}
	on := func(selector spec) spec { return spec{"etcd": spec{"podSelectors": []any{selector}}} }
	own := on(spec{"matchLabels": spec{"app": "api"}})
	ratchets(t, "WeederConfig", decided(t, weeders, spec{
		"watchDuration": "2m", "servicesAndDependantSelectors": on(spec{"matchLabels": spec{"app": "web"}}), "namespaceSelector": spec{"matchLabels": spec{"shoot": "false"}},
		"readyPolicy": "AllReady", "includeInitContainers": false, "deletion": "Evict", "maxDeletionsPerWatch": 1, "maxRepeatsPerOwner": 1, "cooldown": "20s", "mode": "Observe",
		"serviceAccountName": able,
	}, map[string][]spec{"autohealer-system": {
		{"servicesAndDependantSelectors": own, "namespaceSelector": shoots}, {"servicesAndDependantSelectors": on(sick)}, {"servicesAndDependantSelectors": on(torn)},
		{"servicesAndDependantSelectors": own, "namespaceSelector": sick}, {"servicesAndDependantSelectors": own, "namespaceSelector": torn},
	}, "shop": {{"servicesAndDependantSelectors": own}}}))

	to := func(name string) []any { return []any{spec{"group": "", "kind": "Service", "name": name}} }
	ratchets(t, "OutlierPolicy", decided(t, outliers, spec{
		"targetRefs": to("another"), "disabled": true, "mode": "Observe", "outlierDetection": spec{}, "panicThreshold": 50, "connectTimeout": "250ms",
	}, map[string][]spec{"shop": {{"targetRefs": to("bytes"), "outlierDetection": spec{"splitExternalLocalOriginErrors": true, "consecutiveLocalOriginFailure": 0}}}}))

	scaling := func(kind, name string) []any {
		return []any{spec{"ref": spec{"apiVersion": "apps/v1", "kind": kind, "name": name}, "scaleUp": spec{"level": 0}, "scaleDown": spec{"level": 0}}}
	}
	probing := func(more spec) spec {
		s := spec{"internalKubeConfigSecretName": "in", "externalKubeConfigSecretName": "out", "serviceAccountName": able, "dependentResourceInfos": scaling("Deployment", "apiserver")}
		maps.Copy(s, more)
		return s
	}
	ratchets(t, "ProbeConfig", decided(t, probers, spec{
		"internalKubeConfigSecretName": "another", "externalKubeConfigSecretName": "another", "probeInterval": "5s", "initialDelay": "20s", "probeTimeout": "2s",
		"successThreshold": 2, "failureThreshold": 5, "internalProbeFailureBackoffDuration": "1m", "backoffJitterFactor": 0.5,
		"dependentResourceInfos": scaling("Deployment", "kcm"), "namespaceSelector": spec{"matchLabels": spec{"shoot": "false"}},
		"nodeLeases": spec{"monitorGraceDuration": "40s"}, "annotateMeltdownProtection": true, "mode": "Observe", "serviceAccountName": "unable",
	}, map[string][]spec{"autohealer-system": {
		probing(spec{"namespaceSelector": shoots}), probing(spec{"namespaceSelector": shoots, "internalKubeConfigSecretName": "unsafe"}),
		probing(spec{"namespaceSelector": shoots, "dependentResourceInfos": scaling("DaemonSet", "agent")}),
		probing(spec{"namespaceSelector": shoots, "dependentResourceInfos": scaling("Deployment", "healer")}),
	}, "shop": {
		probing(nil), probing(spec{"internalKubeConfigSecretName": "another"}), probing(spec{"externalKubeConfigSecretName": "another"}),
		probing(spec{"internalKubeConfigSecretName": "unsafe"}), probing(spec{"externalKubeConfigSecretName": "unsafe"}),
		probing(spec{"dependentResourceInfos": scaling("DaemonSet", "agent")}),
	}}))
}
