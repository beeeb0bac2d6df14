package lease

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestNoMoreOfALeaseIsBelievedThanAManagerWrites(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(holder string, seconds int32, age time.Duration) coordinationv1.LeaseSpec {
		return coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-age)))}
	}
	for name, c := range map[string]struct {
		spec coordinationv1.LeaseSpec
		want Doubt
		says string
	}{
		"one that is renewed":           {of("a", 15, time.Second), None, ""},
		"just before it lapses":         {of("a", 15, 15*time.Second-1), None, ""},
		"one that lapsed":               {of("a", 15, 15*time.Second), NotHeld, ""},
		"one that was given back":       {of("", 15, time.Second), NotHeld, ""},
		"one that nobody ever held":     {coordinationv1.LeaseSpec{}, NotHeld, ""},
		"clocks that differ a little":   {of("a", 15, -14*time.Second), None, ""},
		"a time that can't have been":   {of("a", 15, -15*time.Second), FromTheFuture, "was renewed in the future, at 2026-03-01T12:00:15Z"},
		"one for an hour":               {of("a", 3600, time.Second), Foreign, "lasts 3600 seconds, and a manager writes 15"},
		"one for an hour, long lapsed":  {of("a", 3600, 2*time.Hour), Foreign, "lasts 3600 seconds"},
		"one that says nothing of that": {coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a"), RenewTime: ptr.To(metav1.NewMicroTime(now))}, Foreign, "lasts 0 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(c.spec, now)
			if words := got.Message(c.spec); got != c.want || !strings.HasPrefix(words, c.says) || (words == "") != (c.says == "") {
				t.Errorf("got %d, %q; want %d, %q", got, words, c.want, c.says)
			}
		})
	}
}

// TestAnyVersionCanLead: what no label can hold isn't told, and the API server takes the Lease all the same.
func TestAnyVersionCanLead(t *testing.T) {
	for built, want := range map[string]struct{ label, told string }{
		"v0.1.2":                  {"v0.1.2", "v0.1.2"},
		"v0.1.2-3-g851ffbd-dirty": {"v0.1.2-3-g851ffbd-dirty", "v0.1.2-3-g851ffbd-dirty"},
		"v0.0.0-20261127113514-851ffbd12345+dirty": {"v0.0.0-20261127113514-851ffbd12345_dirty", "v0.0.0-20261127113514-851ffbd12345+dirty"},
		"our build of 1/2":                         {}, strings.Repeat("1", 64): {}, "": {},
	} {
		labels := Labels(built)
		if label, written := labels["app.kubernetes.io/version"]; label != want.label || !written {
			t.Errorf("%q: got %q, want %q", built, labels, want.label)
		}
		if told := Version(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Labels: labels}}); told != want.told {
			t.Errorf("%q: told %q, want %q", built, told, want.told)
		}
	}
}
