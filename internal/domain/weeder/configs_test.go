package weeder_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func TestAConfigThatChanges(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("db-1", backOff), newPod("web-0", readySince(-10*second)))
	y.ObserveSlice(newSlice("w", "web", "web-0"), at(0))
	recoverEtcd(y, 0)
	y.DrainOpened()
	change := func(spec string, d time.Duration) string {
		wc := newWeederConfig(t, "ns", "wc", spec)
		wc.Generation = int64(2 + d/second)
		return names(y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(d)))
	}
	expect(t, "other pods depend on it", change("watchDuration: 2m\nservicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: db}}]}}", 10*second), "db-1")
	expect(t, "a former one", decide(y, "api-1", 10*second), "")
	expect(t, "a shorter watchDuration", change("watchDuration: 15s\nservicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: db}}]}}", 14*second), "db-1")
	expect(t, "after its end", decide(y, "db-1", 15*second), "")
	expect(t, "another Service, which recovered lately", change("watchDuration: 60s\nservicesAndDependantSelectors: {web: {podSelectors: [{matchLabels: {app: db}}]}}", 20*second), "db-1")
	expect(t, "windows", strings.Join(opened(y), "; "), "ns/web until +50s")
	y.ForgetConfig("wc-uid")
	expect(t, "without a config", decide(y, "db-1", 21*second), "")
	expect(t, "without a config", names(y.Due(at(21*second))), "")
}

func TestAConfigThatChangesForgetsWhomItHeldBack(t *testing.T) {
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 1
	y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff), newPod("api-2", backOff), newPod("db-1", backOff))
	y.SetLimits(limits)
	recoverEtcd(y, 0)
	deleted(t, y, "api-1", 0)
	expect(t, "the second", decide(y, "api-2", 0), "MaxPodDeletionsPerMinute")
	wc := newWeederConfig(t, "ns", "wc", "watchDuration: 2m\nservicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: db}}]}}")
	wc.Generation = 2
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(second))
	sum, _ := y.Summary("wc-uid", at(second))
	expect(t, "held", len(sum.Held), 0)
	expect(t, "a dependent of the changed one waits for nobody", decide(y, "db-1", time.Minute), "delete")
}

func TestAConfigMayHoldInManyNamespaces(t *testing.T) {
	y := newState()
	wc := newWeederConfig(t, "autohealer-system", "wc", etcdForAPI+"namespaceSelector: {matchLabels: {shoot: 'yes'}}")
	y.ObserveConfig(compiled(t, wc), lifecycle.Active, at(0))
	shoot := map[string]string{"shoot": "yes"}
	y.ObserveNamespace(newNamespace("a", shoot), at(0))
	y.ObserveNamespace(newNamespace("b", nil), at(0))
	y.ObserveNamespace(newNamespace("autohealer-system", nil), at(0))
	slice := func(namespace string, endpoints ...string) *discoveryv1.EndpointSlice {
		s := newSlice("s", "etcd", endpoints...)
		s.Namespace = namespace
		return s
	}
	for _, namespace := range []string{"a", "b", "c", "autohealer-system"} {
		svc := newService("etcd", selecting("etcd"))
		svc.Namespace = namespace
		y.ObserveService(svc)
		y.ObserveSlice(slice(namespace, "etcd-0:notready"), at(0))
		y.ObservePod(weeder.ReadPod(newPod("api-1", in(namespace), backOff)), at(0))
		y.ObservePod(weeder.ReadPod(newPod("etcd-0", in(namespace), readySince(10*second))), at(10*second))
	}
	y.MarkSynced(at(0))
	var due []types.NamespacedName
	for _, namespace := range []string{"a", "b", "c", "autohealer-system"} {
		due = append(due, y.ObserveSlice(slice(namespace, "etcd-0"), at(10*second))...)
	}
	expect(t, "due", len(due), 1)
	expect(t, "due", due[0].String(), "a/api-1")
	expect(t, "due in one that is labelled now", y.ObserveNamespace(newNamespace("b", shoot), at(20*second))[0].String(), "b/api-1")
	expect(t, "due in one that is created now", y.ObserveNamespace(newNamespace("c", shoot), at(30*second))[0].String(), "c/api-1")
	expect(t, "windows", strings.Join(opened(y), "; "), "a/etcd until +2m10s; b/etcd until +2m10s; c/etcd until +2m10s")
	sum, _ := y.Summary("wc-uid", at(30*second))
	expect(t, "Services that are there", sum.Services, 3)
	y.ObserveNamespace(newNamespace("a", nil), at(40*second))
	y.ForgetNamespace("b", "")
	sum, _ = y.Summary("wc-uid", at(40*second))
	expect(t, "windows left", slices.IndexFunc(sum.Windows, func(w v1alpha1.RecoveryWindow) bool { return w.Namespace != "c" }), -1)
	expect(t, "windows left", sum.ActiveWindows, 1)
}

func TestNamespaceSelectorIsForAutohealersOwnNamespace(t *testing.T) {
	wc := newWeederConfig(t, "tenant", "wc", etcdForAPI+"namespaceSelector: {}")
	if _, err := weeder.NewConfig(wc, "autohealer-system"); err == nil || !strings.Contains(err.Error(), "only in Autohealer's own namespace") {
		t.Errorf("got %v", err)
	}
	if _, err := weeder.NewConfig(wc, ""); err == nil {
		t.Error("taken while Autohealer's own namespace isn't known")
	}
}
