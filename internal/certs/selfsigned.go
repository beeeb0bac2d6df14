package certs

import (
	"context"
	"crypto/tls"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// SelfSigned keeps a CA and a serving certificate in the record, publishes the CA in the webhook's configuration, and
// rotates both.
//
// Deleting the Secret renews everything at once. It is meant for a leaked key, and so doesn't keep the old CA trusted:
// admission may be refused for the seconds until every replica has the new certificate.
type SelfSigned struct {
	keeper
	schedule schedule
}

// NewSelfSigned gives a provider that does nothing before SetupWithManager.
func NewSelfSigned(o Options) *SelfSigned {
	o = o.withDefaults()
	return &SelfSigned{
		keeper:   keeper{options: o, part: selfSignedPart},
		schedule: schedule{caLife: o.CALife, leafLife: o.LeafLife, hosts: o.Hosts},
	}
}

// Reconcile takes the rotation step that is due, serves what the record holds and publishes its CAs.
func (s *SelfSigned) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return s.keep(ctx, s.turn)
}

func (s *SelfSigned) turn(data map[string][]byte, c circumstances) (turn, error) {
	current, step, err := s.next(data, c)
	if err != nil {
		return turn{}, err
	}
	t := turn{step: step, leaf: current.served()}
	if t.content, err = current.encode(); err != nil {
		return turn{}, err
	}
	if current.next != nil {
		t.again = s.untilSettled(c.now)
	}
	return t, nil
}

func (s *SelfSigned) next(data map[string][]byte, c circumstances) (state, string, error) {
	if len(selfSignedPart.in(data)) == 0 {
		first, err := s.schedule.start(c.now, c.others)
		return first, "there was nothing in the Secret: made a CA", err
	}
	current, err := decodeState(data)
	if err != nil {
		first, startErr := s.schedule.start(c.now, c.others)
		return first, fmt.Sprintf("the Secret was unusable: started afresh (%v)", err), startErr
	}
	return s.schedule.advance(current, c)
}

// served is what a server needs of the leaf; nil while there is none.
func (s state) served() *tls.Certificate {
	if s.unserved() {
		return nil
	}
	return s.leaf.tlsCertificate()
}
