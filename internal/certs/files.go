package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// retryLoad is how often missing or broken files are looked at again before the first good pair.
const retryLoad = time.Second

// Files serves tls.crt and tls.key of a directory and follows changes. A pair that can't be read is logged, and the last
// good one stays. Publishing the CA is up to whoever writes the files.
type Files struct {
	dir     string
	watcher atomic.Pointer[certwatcher.CertWatcher]
}

// NewFiles gives a provider that does nothing before SetupWithManager.
func NewFiles(dir string) *Files { return &Files{dir: dir} }

// SetupWithManager runs the provider on every replica.
func (f *Files) SetupWithManager(mgr ctrl.Manager) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	return mgr.Add(f)
}

// NeedLeaderElection is false: every replica serves.
func (f *Files) NeedLeaderElection() bool { return false }

// Start loads the files as soon as they are there and follows them until ctx ends.
func (f *Files) Start(ctx context.Context) error {
	watcher, err := f.load(ctx)
	if err != nil {
		return nil //nolint:nilerr // only the end of ctx ends the attempts
	}
	watcher.RegisterCallback(func(c tls.Certificate) { expiry.Set(float64(c.Leaf.NotAfter.Unix())) })
	f.watcher.Store(watcher)
	if err := watcher.Start(ctx); err != nil {
		return fmt.Errorf("follow the certificate in %s: %w", f.dir, err)
	}
	return nil
}

// load tries until it succeeds or ctx ends. The manager comes up meanwhile, unready, and its controllers may act.
func (f *Files) load(ctx context.Context) (*certwatcher.CertWatcher, error) {
	var watcher *certwatcher.CertWatcher
	var logged string
	err := wait.PollUntilContextCancel(ctx, retryLoad, true, func(ctx context.Context) (bool, error) {
		var err error
		watcher, err = certwatcher.New(filepath.Join(f.dir, "tls.crt"), filepath.Join(f.dir, "tls.key"))
		if err != nil && err.Error() != logged {
			logged = err.Error()
			log.FromContext(ctx).Error(err, "Can't load the serving certificate, trying on", "dir", f.dir)
		}
		return err == nil, nil
	})
	return watcher, err
}

// TLSConfig lets a server serve the current certificate; for the webhook server's TLSOpts.
func (f *Files) TLSConfig(c *tls.Config) {
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if watcher := f.watcher.Load(); watcher != nil {
			return watcher.GetCertificate(hello)
		}
		return nil, errNothingServed
	}
}

// Ready is a readiness check: a pair was loaded.
func (f *Files) Ready(*http.Request) error {
	if f.watcher.Load() == nil {
		return fmt.Errorf("%w in %s", errNothingServed, f.dir)
	}
	return nil
}
