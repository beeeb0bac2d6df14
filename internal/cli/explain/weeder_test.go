package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func TestManyPodsAreCountedNotListed(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	service := weeder.ServiceForecast{Namespace: "shop", Name: "database", Endpoints: true, Dependents: 25, CrashLooping: 25}
	var pods []*weeder.Pod
	for i := range 25 {
		p := &weeder.Pod{Namespace: "shop", Name: fmt.Sprintf("cart-%02d", i), Main: weeder.CrashLoop{Container: "main", Waiting: true, Restarts: 3}}
		pods = append(pods, p)
		service.Pods = append(service.Pods, weeder.PodForecast{Name: p.Name, CrashLoop: p.Main, Delete: true})
	}
	views := snapshot.Weeders{Views: []snapshot.WeederView{{Config: &v1alpha1.WeederConfig{}, Services: []weeder.ServiceForecast{service}}}}
	const rest = "5 pods more like these: see each with kubectl autohealer explain pod/NAME\n"
	for what, got := range map[string]string{
		"of a Service":  Service(types.NamespacedName{Namespace: "shop", Name: "database"}, views, now),
		"of a workload": Workload("deployment/cart", Dependent{Namespace: "shop"}, pods, views, now, func(v1alpha1.PodDeletion) bool { return false }),
	} {
		if strings.Count(got, "pod/cart-") != 20 || !strings.Contains(got, "pod/cart-19") || !strings.HasSuffix(got, rest) {
			t.Errorf("%s: want the first 20 pods, and %q\n%s", what, rest, got)
		}
	}
}
