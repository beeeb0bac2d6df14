package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/internal/retry"
)

// What an API server says: by the schema, by a webhook that answers 422, and where a guard of a JSON Patch doesn't hold.
var (
	bySchema = apierrors.NewInvalid(schema.GroupKind{Group: "example.org", Kind: "Gadget"}, "g",
		field.ErrorList{field.TooLong(field.NewPath("status", "conditions").Index(0).Child("message"), "", 10)})
	byWebhook = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "admission webhook no.example.org denied the request: not X",
	}}
	byGuard = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "testing value failed", 0, false)
)

// writes are those of conditions of type X.
type writes struct {
	patches int
	// refuse the nth.
	refuse func(nth int) error
	// raced: somebody else writes before what is refused.
	raced bool
}

func (w *writes) funcs() interceptor.Funcs {
	return interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
		data, err := patch.Data(o)
		if err != nil || !strings.Contains(string(data), `"type":"X"`) {
			return c.SubResource(subresource).Patch(ctx, o, patch, options...)
		}
		w.patches++
		err = w.refuse(w.patches)
		if err == nil {
			return c.SubResource(subresource).Patch(ctx, o, patch, options...)
		}
		if w.raced {
			other := untyped(gadget)
			other.SetNamespace("a")
			other.SetName("g")
			if err := c.Patch(ctx, other, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"n":"`+strings.Repeat("x", w.patches)+`"}}}`))); err != nil {
				return err
			}
		}
		return err
	}}
}

func always(err error) func(int) error { return func(int) error { return err } }

func progressing(threshold time.Duration) func() HealthCheck {
	return func() HealthCheck {
		return checkFunc(func(context.Context) (*SingleCheckResult, error) {
			return &SingleCheckResult{Status: ConditionProgressing, ProgressingThreshold: ptr.To(threshold)}, nil
		})
	}
}

func TestARefusedConditionDelaysNoOther(t *testing.T) {
	for name, tt := range map[string]struct {
		writes  writes
		patches int
		reads   int    // live ones
		want    string // of the error
	}{
		"by the schema":             {writes{refuse: always(bySchema)}, 1, 0, "write condition X: " + bySchema.Error()},
		"by a webhook":              {writes{refuse: always(byWebhook)}, 1, 1, "write condition X: admission webhook no.example.org denied the request: not X"},
		"for want of rights":        {writes{refuse: always(apierrors.NewForbidden(schema.GroupResource{}, "g", errors.New("no role")))}, 1, 0, "no role"},
		"by others, without an end": {writes{refuse: always(byGuard), raced: true}, 8, 8, "the target changed 8 times meanwhile: write condition X: " + byGuard.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, stored := reconcilerOf(For(gadget).Check("X", "x", fine).Check("Y", "y", fine).Check("Z", "z", progressing(20*time.Second)), tt.writes.funcs())
				paced := retry.New(r, anyFailure)
				reads := 0
				r.writer.live = interceptor.NewClient(stored.(client.WithWatch), interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
						reads++
						return c.Get(ctx, key, into, options...)
					},
				})
				for range 10 {
					_, err := paced.Reconcile(t.Context(), ofG)
					if err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Errorf("the error is %v", err)
					}
					if wait := paced.When(ofG); wait < time.Second || wait > 20*time.Second {
						t.Errorf("the next try is in %s", wait)
					}
				}
				if tt.writes.patches != 10*tt.patches || reads != 10*tt.reads {
					t.Errorf("%d patches, %d live reads", tt.writes.patches, reads)
				}
				for conditionType, want := range map[string]string{"X": "none", "Y": "True: ", "Z": "Progressing: "} {
					if got := conditionOf(t, stored, conditionType); !strings.HasPrefix(got, want) {
						t.Errorf("%s is %s", conditionType, got)
					}
				}
				time.Sleep(25 * time.Second)
				if _, err := paced.Reconcile(t.Context(), ofG); err == nil || !strings.HasPrefix(conditionOf(t, stored, "Z"), "False: ") {
					t.Errorf("%v; once Z's threshold is over it is %s", err, conditionOf(t, stored, "Z"))
				}
				if wait := paced.When(ofG); wait < 27*time.Second || wait > 33*time.Second {
					t.Errorf("with nothing due but the next look the next try is in %s", wait)
				}
			})
		})
	}
}

func TestALostRaceIsRunAgain(t *testing.T) {
	w := writes{raced: true, refuse: func(nth int) error {
		if nth < 3 {
			return byGuard
		}
		return nil
	}}
	r, stored := reconcilerOf(For(gadget).Check("X", "x", fine), w.funcs())
	paced := retry.New(r, anyFailure)
	if _, err := paced.Reconcile(t.Context(), ofG); err != nil || w.patches != 3 || !strings.HasPrefix(conditionOf(t, stored, "X"), "True: ") {
		t.Errorf("%v after %d patches; it is %s", err, w.patches, conditionOf(t, stored, "X"))
	}
	if wait := paced.When(ofG); wait > 2*time.Second {
		t.Errorf("the next failure is tried again in %s", wait)
	}
}

func TestATargetThatCantBeReadIsTriedAgainWithinAMinute(t *testing.T) {
	r, _ := reconcilerOf(For(gadget, WithSyncPeriod(time.Hour)).Check("X", "x", fine), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no")
		},
	})
	paced := retry.New(r, anyFailure)
	for nth := range 12 {
		if _, err := paced.Reconcile(t.Context(), ofG); err == nil {
			t.Fatal("it is read")
		}
		wait := paced.When(ofG)
		if nth == 0 && wait > 2*time.Second || wait > 72*time.Second {
			t.Errorf("the try after %d others is in %s", nth, wait)
		}
	}
}

func TestARefusedRemovalHoldsUpNoOther(t *testing.T) {
	none := writes{refuse: always(nil)}
	r, stored := reconcilerOf(For(gadget).Check("X", "x", fine).Check("Y", "y", fine).Check("Z", "z", fine), none.funcs())
	if _, err := r.Reconcile(t.Context(), ofG); err != nil {
		t.Fatal(err)
	}
	refused := writes{refuse: always(bySchema)}
	r.Registration = For(gadget, WithoutConditions("X", "Y")).Check("Z", "z", fine)
	r.writer.client = interceptor.NewClient(stored.(client.WithWatch), refused.funcs())
	_, err := r.Reconcile(t.Context(), ofG)
	if err == nil || !strings.HasPrefix(conditionOf(t, stored, "X"), "True: ") || conditionOf(t, stored, "Y") != "none" || !strings.HasPrefix(conditionOf(t, stored, "Z"), "True: ") {
		t.Errorf("%v; X is %s, Y is %s", err, conditionOf(t, stored, "X"), conditionOf(t, stored, "Y"))
	}
}

func TestWhatAnotherWritesMeanwhileStays(t *testing.T) {
	var theirs client.Patch // of another writer, before ours
	r, stored := reconcilerOf(For(gadget).Check("X", "x", func() HealthCheck { return &sourced{} }), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if first := theirs; first != nil {
				theirs = nil
				other := untyped(gadget)
				other.SetNamespace("a")
				other.SetName("g")
				if err := c.SubResource(subresource).Patch(ctx, other, first); err != nil {
					return err
				}
			}
			err := c.SubResource(subresource).Patch(ctx, o, patch, options...)
			if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // it doesn't apply, which an API server calls unprocessable
				return byGuard
			}
			return err
		},
	})
	for _, tt := range []struct{ says, theirs, x, want string }{
		{"True", `[{"op": "add", "path": "/status", "value": {"conditions": [{"type": "A", "status": "True", "message": "1"}]}}]`, "True: (1/1)", "[A X]"},
		{"False", `[{"op": "add", "path": "/status/conditions/0", "value": {"type": "B", "status": "True", "message": "1"}}]`, "False: (0/1)", "[B A X]"},
		{"True", `[{"op": "replace", "path": "/status/conditions/1/message", "value": "2"}]`, "True: (1/1)", "[B A X]"},
		{"False", `[{"op": "remove", "path": "/status/conditions/2"}]`, "False: (0/1)", "[B A X]"},
	} {
		r.runner.seed, theirs = &world{says: tt.says}, client.RawPatch(types.JSONPatchType, []byte(tt.theirs))
		if _, err := r.Reconcile(t.Context(), ofG); err != nil || theirs != nil {
			t.Errorf("after %s: %v", tt.theirs, err)
		}
		g := untyped(gadget)
		if err := stored.Get(t.Context(), ofG.NamespacedName, g); err != nil {
			t.Fatal(err)
		}
		list, _, _ := unstructured.NestedSlice(g.Object, "status", "conditions")
		are := []string{}
		for _, item := range list {
			are = append(are, item.(map[string]any)["type"].(string))
		}
		if x := conditionOf(t, stored, "X"); fmt.Sprint(are) != tt.want || !strings.HasPrefix(x, tt.x) {
			t.Errorf("after %s there are %s, and X is %s", tt.theirs, are, x)
		}
	}
	if got := conditionOf(t, stored, "A"); got != "True: 2" {
		t.Errorf("A is %s", got)
	}
}
