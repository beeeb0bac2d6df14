// Package lease is how the manager's replicas agree on the leader, and how others recognize it.
package lease

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// Name names the Lease, and the Deployment whose replicas renew it.
	Name = "autohealer-manager"
	// Duration is after how long without renewal a standby takes over; RenewDeadline is after how long a leader that
	// can't renew stops acting. What lies between is for the writes that were sent before.
	Duration      = 15 * time.Second
	RenewDeadline = 10 * time.Second
)

// labelVersion on the Lease says of which version the manager is that wrote it last.
const labelVersion = "app.kubernetes.io/version"

// Labels are what a manager writes on its Lease. By the first two the plugin finds the namespace where one was, when nothing else is left.
// The version is nothing where no label can have it, which must keep nobody from leading. Leader election writes labels and no annotations. A label has no +, and a version no _, which stands for it.
func Labels(version string) map[string]string {
	label := strings.ReplaceAll(version, "+", "_")
	if len(validation.IsValidLabelValue(label)) > 0 {
		label = ""
	}
	return map[string]string{"app.kubernetes.io/name": "autohealer", "app.kubernetes.io/component": "manager", labelVersion: label}
}

// Version of the manager that wrote a Lease last; "" where it doesn't say.
func Version(l *coordinationv1.Lease) string {
	return strings.ReplaceAll(l.Labels[labelVersion], "_", "+")
}

// Doubt is why a Lease doesn't show that a manager leads.
type Doubt int

// A Lease shows that a manager leads, that none does, or nothing.
const (
	None Doubt = iota
	NotHeld
	// Foreign is one that no manager wrote, and that keeps all from leading until it ends.
	Foreign
	// FromTheFuture is renewed at a time that can't have been.
	FromTheFuture
)

// Of looks at a Lease. No more of it is believed than a manager writes: whoever may write Leases can write one that lasts for hours.
func Of(s coordinationv1.LeaseSpec, now time.Time) Doubt {
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil {
		return NotHeld
	}
	age := now.Sub(s.RenewTime.Time)
	switch {
	case lasts(s) != Duration:
		return Foreign
	case age <= -Duration:
		return FromTheFuture
	case age < Duration:
		return None
	}
	return NotHeld
}

func lasts(s coordinationv1.LeaseSpec) time.Duration {
	if s.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*s.LeaseDurationSeconds) * time.Second
}

// Message says what is wrong with a Lease that shows nothing; "" of others.
func (d Doubt) Message(s coordinationv1.LeaseSpec) string {
	switch d {
	case Foreign:
		return fmt.Sprintf("lasts %.0f seconds, and a manager writes %.0f: no manager of this version wrote it, and none can lead while it lasts", lasts(s).Seconds(), Duration.Seconds())
	case FromTheFuture:
		return fmt.Sprintf("was renewed in the future, at %s, so it isn't known whether a manager leads", s.RenewTime.UTC().Format(time.RFC3339))
	}
	return ""
}
