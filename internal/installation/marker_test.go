package installation

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const annotation = "autohealer.resourcestack.com/installation"

func namespace(name string, uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}

func configuration(mark string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "autohealer"}}
	if mark != "" {
		c.Annotations = map[string]string{annotation: mark}
	}
	return c
}

func TestWhoseTheClusterIs(t *testing.T) {
	own := namespace("own", "1")
	outage := errors.New("time-out")
	for name, test := range map[string]struct {
		there []client.Object
		// fails are names of what can't be read.
		fails []string
		// ours, or another's, or else it can't be told.
		ours, others bool
		mark         string
	}{
		"nobody's: it is marked":                       {there: []client.Object{own, configuration("")}, ours: true, mark: "own/1"},
		"ours, after an upgrade or on another replica": {there: []client.Object{own, configuration("own/1")}, ours: true, mark: "own/1"},
		"another's":                         {there: []client.Object{own, namespace("other", "2"), configuration("other/2")}, others: true, mark: "other/2"},
		"another's whose namespace is gone": {there: []client.Object{own, configuration("other/2")}, ours: true, mark: "own/1"},
		"another's whose namespace was made again by somebody":       {there: []client.Object{own, namespace("other", "3"), configuration("other/2")}, ours: true, mark: "own/1"},
		"that of our namespace before it was deleted and made again": {there: []client.Object{own, configuration("own/0")}, ours: true, mark: "own/1"},
		"whether the other's namespace is there can't be told":       {there: []client.Object{own, configuration("other/2")}, fails: []string{"other"}, mark: "other/2"},
		"the mark can't be read":                                     {there: []client.Object{own, configuration("own/1")}, fails: []string{"autohealer"}, mark: "own/1"},
		"our own namespace can't be read":                            {there: []client.Object{own, configuration("own/1")}, fails: []string{"own"}, mark: "own/1"},
		"our own namespace isn't there":                              {there: []client.Object{configuration("")}},
		"the mark is none":                                           {there: []client.Object{own, configuration("someone")}, mark: "someone"},
		"there is no webhook":                                        {there: []client.Object{own}, ours: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(test.there...).Build(), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					for _, fails := range test.fails {
						if key.Name == fails {
							return outage
						}
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			m := &Marker{Client: c, Configuration: "autohealer", Namespace: "own"}
			err := m.Ours(t.Context())
			other, others := errors.AsType[*Other](err)
			if (err == nil) != test.ours || others != test.others {
				t.Errorf("it says %v", err)
			}
			if m.Mine() != test.ours {
				t.Errorf("mine says %v", m.Mine())
			}
			if ready := m.Ready(nil); (ready != nil) != test.others {
				t.Errorf("ready says %v", ready)
			}
			if others && other.Error() != "this cluster is marked as that of the installation in namespace other, so the one in namespace own does nothing. "+
				"If the one in namespace other is gone for good: kubectl annotate validatingwebhookconfiguration autohealer autohealer.resourcestack.com/installation-" {
				t.Error(other)
			}
			test.fails = []string{"own"}
			if err := m.Ours(t.Context()); err == nil || m.Mine() != test.ours {
				t.Error("what can't be told changes what was known:", err)
			}
			test.fails = nil
			stored := configuration("")
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if got := stored.Annotations[annotation]; got != test.mark {
				t.Errorf("the mark is %q", got)
			}
		})
	}
}

// Both have seen that it was nobody's.
func TestOfTwoThatStartAtOnceOneGetsTheCluster(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(namespace("a", "1"), namespace("b", "2"), configuration("")).Build()
	first := &Marker{Client: c, Configuration: "autohealer", Namespace: "a"}
	late := interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := first.Ours(ctx); err != nil {
				t.Error(err)
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
	second := &Marker{Client: late, Configuration: "autohealer", Namespace: "b"}
	if err := second.Ours(t.Context()); err == nil {
		t.Error("both got it")
	}
	if _, others := errors.AsType[*Other](second.Ours(t.Context())); !others {
		t.Error("the second doesn't see the first")
	}
	if err := first.Ours(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhoseTheClusterIsNeedNotBeAskedAgainWhileNothingSpeaksAgainstIt(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(namespace("own", "1"), namespace("other", "2"), configuration("own/1")).Build()
	var during func()
	m := &Marker{Configuration: "autohealer", Namespace: "own", Client: interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if during != nil {
				during()
			}
			return err
		},
	})}
	whose := func(mark string) func() {
		return func() {
			stored := configuration("")
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
				t.Fatal(err)
			}
			stored.Annotations[annotation] = mark
			if err := c.Update(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range []struct {
		name                   string
		before, during         func()
		asked, undoubted, ours bool
	}{
		{name: "nobody has asked, and nothing watches"},
		{name: "it is ours, and nothing watches", asked: true, ours: true},
		{name: "it is ours, as was asked before it was watched", before: func() { m.watched.Store(true) }, undoubted: true, ours: true},
		{name: "the watch told of something", before: m.Doubt, ours: true},
		{name: "which it is asked about", asked: true, undoubted: true, ours: true},
		{name: "the watch tells of something while it is asked", during: m.Doubt, asked: true, ours: true},
		{name: "it is another's", before: whose("other/2"), asked: true},
		{name: "it is ours again, and nobody has asked", before: whose("own/1")},
		{name: "it is ours again", asked: true, undoubted: true, ours: true},
	} {
		if step.before != nil {
			step.before()
		}
		during = step.during
		if step.asked {
			_ = m.Ours(t.Context())
		}
		if m.Undoubted() != step.undoubted || m.Mine() != step.ours {
			t.Errorf("%s: undoubted says %v, and mine %v", step.name, m.Undoubted(), m.Mine())
		}
	}
}
