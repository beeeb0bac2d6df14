package dependents

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// Known keeps registrations made ready: compiling their expressions takes milliseconds. It is safe for concurrent use; the zero
// value is empty.
type Known struct{ by sync.Map }

type knownKey struct {
	name       string
	uid        types.UID
	generation int64
}

// read makes a stored registration ready; nil when it can't be read.
func (k *Known) read(hcr *v1alpha1.HealthCheckRegistration) *registration.Registration {
	key := knownKey{hcr.Name, hcr.UID, hcr.Generation}
	if k != nil && hcr.UID != "" {
		if known, ok := k.by.Load(key); ok {
			return known.(*registration.Registration)
		}
	}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		reg = nil
	}
	if k != nil && hcr.UID != "" {
		k.by.Store(key, reg)
	}
	return reg
}

// keep forgets all registrations but these.
func (k *Known) keep(stored []*v1alpha1.HealthCheckRegistration) {
	if k == nil {
		return
	}
	is := map[knownKey]bool{}
	for _, hcr := range stored {
		is[knownKey{hcr.Name, hcr.UID, hcr.Generation}] = true
	}
	k.by.Range(func(key, _ any) bool {
		if !is[key.(knownKey)] {
			k.by.Delete(key)
		}
		return true
	})
}

// others are the stored registrations but for the one of this name, and those that can't be read.
func (s *Survey) others(stored []*v1alpha1.HealthCheckRegistration, reg *registration.Registration) []*registration.Registration {
	var all []*registration.Registration
	for _, hcr := range stored {
		if hcr.Name == reg.Name || hcr.DeletionTimestamp != nil {
			continue
		}
		if other := s.Known.read(hcr); other != nil {
			all = append(all, other)
		}
	}
	s.Known.keep(stored)
	return all
}

// breakerOf is the breaker of the stored registration of this name; nil while it is closed, or was reset.
func breakerOf(hcr *v1alpha1.HealthCheckRegistration, stored []*v1alpha1.HealthCheckRegistration) *health.Breaker {
	for _, is := range stored {
		b := is.Status.Breaker
		if is.Name != hcr.Name || b == nil || b.ID == is.Annotations[v1alpha1.AnnotationResetBreaker] || b.ID == hcr.Annotations[v1alpha1.AnnotationResetBreaker] {
			continue
		}
		return &health.Breaker{ID: b.ID, OpenedAt: b.OpenedAt.Time}
	}
	return nil
}
