package certs

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// SelfSigned keeps a CA and a serving certificate in the record, publishes the CA in the webhook's configuration, and
// rotates both: at two thirds of their life, which leaves a third for somebody to notice that rotation fails.
//
// Deleting the Secret renews everything at once. It is meant for a leaked key, and so doesn't keep the old CA trusted:
// admission may be refused for the seconds until every replica has the new certificate.
type SelfSigned struct{ keeper }

// NewSelfSigned gives a provider that does nothing before SetupWithManager.
func NewSelfSigned(o Options) *SelfSigned {
	return &SelfSigned{keeper{options: o.withDefaults(), part: selfSignedPart}}
}

// Reconcile takes the rotation step that is due, serves what the record holds and publishes its CAs.
func (s *SelfSigned) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return s.keep(ctx, s.sign)
}

// sign makes what should be served in place of what is; nil when that will do. The CA to come signs once it may be served.
func (s *SelfSigned) sign(is state, c circumstances) (*offer, error) {
	ca, hosts := is.ca, s.options.Hosts
	over := is.over(c.now)
	switch {
	case is.next != nil && (c.settled || over):
		ca = is.next
	case is.next == nil && (over || is.usable(c.now) && ca.due(c.now, s.options.CALife)):
		var err error
		if ca, err = newAuthority(c.now, s.options.CALife); err != nil {
			return nil, err
		}
	case is.leaf.due(c.now, s.options.LeafLife) && ca.notAfter().After(is.leaf.notAfter()):
	case is.leaf.covers(hosts) != nil:
		// The present hosts stay in until the next renewal: replicas of two versions would overwrite each other for ever.
		hosts = slices.Concat(hosts, is.leaf.hosts())
		slices.Sort(hosts)
		hosts = slices.Compact(hosts)
	default:
		return nil, nil
	}
	return ca.issue(c.now, s.options.LeafLife, hosts)
}
