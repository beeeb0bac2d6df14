// Package controllers lists what acts. Each kind has a package of its own.
package controllers

import (
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/controllers/conditionset"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Options are what the controllers share.
type Options struct {
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is where Autohealer's own pods run; "" when it runs outside the cluster.
	OwnNamespace string
	// Leads says whether this replica surely leads, just before each act. Default: it does.
	Leads func() bool
}

// AddToManager adds every kind's controllers to a manager.
func AddToManager(mgr manager.Manager, opts Options) error {
	for _, add := range []func() error{
		func() error { return conditionset.AddToManager(mgr, conditionset.Options(opts)) },
	} {
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}
