package healthcheck

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestWhatSuspendsMayBeSomethingElseThanTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Hour)
		asleep := WithSuspended(func(client.Object) bool { return time.Now().Before(until) })
		r, stored := reconcilerOf(For(gadget, asleep).Check("X", "x", fine), interceptor.Funcs{})
		looks := 0
		for deadline := until.Add(time.Minute); time.Now().Before(deadline); looks++ {
			result, err := r.Reconcile(t.Context(), ofG)
			if err != nil || result.RequeueAfter < 27*time.Second || result.RequeueAfter > 33*time.Second {
				t.Fatalf("after %d looks: %+v, %v", looks, result, err)
			}
			if got := conditionOf(t, stored, "X"); (got == "none") != time.Now().Before(until) {
				t.Errorf("after %d looks it is %s", looks, got)
			}
			time.Sleep(result.RequeueAfter)
		}
		if got := conditionOf(t, stored, "X"); !strings.HasPrefix(got, "True: ") {
			t.Errorf("after %d looks it is %s", looks, got)
		}
	})
}
