package weeder_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// What is read live is newer than what the watch tells afterwards, and a name may be another object's by then.
func TestOlderNewsNeverReplaceNewer(t *testing.T) {
	slice := func(uid, version string, endpoints ...string) *discoveryv1.EndpointSlice {
		s := newSlice("etcd-1", "etcd", endpoints...)
		s.UID, s.ResourceVersion = types.UID(uid), version
		return s
	}
	service := func(uid, version, app string) *corev1.Service {
		s := newService("etcd", selecting(app))
		s.UID, s.ResourceVersion = types.UID(uid), version
		return s
	}
	for name, test := range map[string]struct {
		news func(*weeder.State)
		want string
	}{
		"a slice's older state": {func(y *weeder.State) {
			y.ObserveSlice(slice("a", "1007", "etcd-0", "api-1:notready"), at(second))
			y.ObserveSlice(slice("a", "1006", "etcd-0"), at(second))
		}, "PodOfTheService"},
		"a slice's newer state": {func(y *weeder.State) {
			y.ObserveSlice(slice("a", "1006", "etcd-0", "api-1:notready"), at(second))
			y.ObserveSlice(slice("a", "1007", "etcd-0"), at(second))
		}, "delete"},
		"the end of a former slice of the name": {func(y *weeder.State) {
			y.ObserveSlice(slice("b", "1007", "etcd-0", "api-1:notready"), at(second))
			y.ForgetSlice(key("etcd-1"), "a", at(second))
		}, "PodOfTheService"},
		"a slice that is gone": {func(y *weeder.State) {
			y.ObserveSlice(slice("a", "1006", "etcd-0", "api-1:notready"), at(second))
			y.ForgetSlice(key("etcd-1"), "a", at(second))
			y.ObserveSlice(slice("a", "1006", "etcd-0", "api-1:notready"), at(second))
		}, ""},
		"a Service's older state": {func(y *weeder.State) {
			y.ObserveService(service("a", "1007", "api"))
			y.ObserveService(service("a", "1006", "etcd"))
		}, "PodOfTheService"},
		"the end of a former Service of the name": {func(y *weeder.State) {
			y.ObserveService(service("b", "1007", "api"))
			y.ForgetService(key("etcd"), "a")
		}, "PodOfTheService"},
		"the end of the Service": {func(y *weeder.State) {
			y.ObserveService(service("a", "1007", "api"))
			y.ForgetService(key("etcd"), "a")
		}, "delete"},
		"the end of a former pod of the name": {func(y *weeder.State) { y.ForgetPod(key("api-1"), "former") }, "delete"},
		"the end of the pod":                  {func(y *weeder.State) { y.ForgetPod(key("api-1"), "api-1-uid") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, etcdForAPI, newPod("api-1", backOff))
			y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(0))), at(0))
			y.ObserveSlice(slice("a", "1005", "etcd-0"), at(0))
			test.news(y)
			expect(t, "verdict", decide(y, "api-1", 2*second), test.want)
		})
	}
}

func TestANamespacesOlderLabelsNeverReplaceNewer(t *testing.T) {
	ns := func(version string, labels map[string]string) *corev1.Namespace {
		n := newNamespace("ns", labels)
		n.UID, n.ResourceVersion = "a", version
		return n
	}
	shoot := map[string]string{"shoot": "yes"}
	for name, test := range map[string]struct {
		news  func(*weeder.State)
		opens string
	}{
		"it is selected": {func(*weeder.State) {}, "ns/etcd until +2m0s"},
		"an older state": {func(y *weeder.State) {
			y.ObserveNamespace(ns("1007", nil), at(-second))
			y.ObserveNamespace(ns("1006", shoot), at(-second))
		}, ""},
		"the end of a former one of the name": {func(y *weeder.State) { y.ForgetNamespace("ns", "former") }, "ns/etcd until +2m0s"},
		"its end":                             {func(y *weeder.State) { y.ForgetNamespace("ns", "a") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			y := newState()
			y.ObserveNamespace(ns("1005", shoot), at(-time.Minute))
			y.ObserveConfig(compiled(t, newWeederConfig(t, "autohealer-system", "wc", etcdForAPI+"namespaceSelector: {matchLabels: {shoot: \"yes\"}}")), lifecycle.Active, at(-time.Minute))
			y.MarkSynced(at(-time.Minute))
			failEtcd(y, -time.Minute)
			test.news(y)
			recoverEtcd(y, 0)
			expect(t, "windows", strings.Join(opened(y), ";"), test.opens)
		})
	}
}
