package manager

import (
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// outspoken is a manager whose log says why it isn't ready: readyz itself withholds the reasons from whoever asks.
type outspoken struct{ ctrl.Manager }

// AddReadyzCheck adds a check whose outcome is logged.
func (m outspoken) AddReadyzCheck(name string, check healthz.Checker) error {
	return m.Manager.AddReadyzCheck(name, logged(m.GetLogger().WithValues("check", name), check))
}

// logged logs what a check says when it says something else than before; probes come every few seconds.
func logged(log logr.Logger, check healthz.Checker) healthz.Checker {
	var mu sync.Mutex
	said := ""
	return func(r *http.Request) error {
		err := check(r)
		says := ""
		if err != nil {
			says = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case says == said:
		case err != nil:
			log.Info("Not ready", "reason", says)
		default:
			log.Info("Ready")
		}
		said = says
		return err
	}
}
