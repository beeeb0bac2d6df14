package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

func TestWhatIsToldOfAPodThatEnvoysMayEject(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	ejectedFor := func(d time.Duration) v1alpha1.OutlierPolicyStatus {
		return v1alpha1.OutlierPolicyStatus{Ejected: ptr.To[int32](1), Ejections: []v1alpha1.OutlierEjection{
			{Cluster: "shop/web/80", Address: "10.0.0.1:8080", Pod: "web-1", Envoys: 2, Since: metav1.NewTime(now.Add(-d))},
		}}
	}
	for name, c := range map[string]struct {
		status v1alpha1.OutlierPolicyStatus
		want   string
	}{
		"ejected just now": {status: ejectedFor(10 * time.Second), want: `ejected by 2 Envoys since 2026-11-22T02:59:50Z (10s); back at 2026-11-22T03:00:20Z (in 20s) or so, if it is its first time`},
		"ejected again":    {status: ejectedFor(time.Minute), want: `ejected by 2 Envoys since 2026-11-22T02:59:00Z (60s); back at 2026-11-22T03:04:10Z (in 4m10s) or so at the latest`},
		"another one is":   {status: v1alpha1.OutlierPolicyStatus{Ejected: ptr.To[int32](0)}, want: "not ejected"},
		"nobody asks":      {want: "whether it is ejected isn't known: no Envoy is asked; start the manager with --ejections-from"},
		"silence": {status: v1alpha1.OutlierPolicyStatus{Conditions: []metav1.Condition{{Type: "EjectionsUnknown", Status: "True", Message: "1 of 2 Envoys is silent."}}},
			want: "whether it is ejected isn't known: 1 of 2 Envoys is silent."},
		"too many to be named": {status: v1alpha1.OutlierPolicyStatus{Ejected: ptr.To[int32](21)}, want: "not among the 0 of 21 ejected hosts that the policy's status names, so it isn't known"},
	} {
		t.Run(name, func(t *testing.T) {
			op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.OutlierPolicySpec{OutlierDetection: &v1alpha1.OutlierDetection{}}, Status: c.status}
			read, err := outlier.NewPolicy(op)
			if err != nil {
				t.Fatal(err)
			}
			host := outlier.Host{Address: "10.0.0.1", Port: 8080, Pod: "web-1"}
			told := Ejections([]snapshot.HostAssignment{{
				Policy: op, Read: read, Host: host, Hosts: []outlier.Host{host, {Address: "10.0.0.2", Port: 8080}, {Address: "10.0.0.3", Port: 8080}},
				Cluster: outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: "web"}, Port: 80},
			}}, nil, now)
			limits := `  OutlierPolicy web, Envoy cluster shop/web/80: Envoy ejects hosts that keep failing
    A host is ejected after 5 consecutive 5xx, failures of Envoy's own among them
    It stays so for 30s, each further time as much more, at most 5m0s; it ends at the first sweep after, every 10s
    At most 1 of 3 hosts may be ejected at once by one Envoy`
			if !strings.HasPrefix(told, limits) || !strings.HasSuffix(told, "\n    pod/web-1 (10.0.0.1:8080): "+c.want+"\n") {
				t.Errorf("got\n%s", told)
			}
		})
	}
}
