package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// startTimeout bounds one component's start. A loaded machine with two cores needs a few seconds.
	startTimeout = 2 * time.Minute
	// stopGrace is what a component gets to end by itself when it alone is stopped. An API server answers what it has
	// begun and stops listening at once, but would wait a minute for watches that clients hold open.
	stopGrace = 2 * time.Second
)

// Cluster is a running control plane. Its methods may be called concurrently.
type Cluster struct {
	// Config has the rights of a cluster admin and no client-side rate limit worth mentioning.
	Config *rest.Config
	// Kubeconfig is a file with the same rights, for kubectl.
	Kubeconfig string
	// URL of the API server.
	URL string
	// CACert is the PEM certificate that the API server's own is signed with.
	CACert []byte
	// AuditLog is a file with one JSON audit event a line; see audit-policy.yaml for what is in it.
	AuditLog string
	// Dir has all of the cluster's files.
	Dir string

	labelled atomic.Int64 // so that no two writes of Label say the same
	// BinDir has the binaries that run, and kubectl.
	BinDir string

	ca        *authority
	client    kubernetes.Interface
	ports     ports
	hasKwok   bool
	temporary bool
	watchdog  *watchdog
	out       io.Writer

	stopOnce sync.Once
	stopErr  error

	processesMu sync.RWMutex
	processes   map[Component]*process // needs processesMu

	mu        sync.Mutex
	nodeCount map[string]int // by name prefix; needs mu
	keepsLogs bool           // needs mu
}

// Start starts the components that o asks for and returns when all are ready. ctx bounds the start only; end the cluster
// with Stop. An error leaves nothing behind.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	began := time.Now()
	c, err := prepare(o)
	if err != nil {
		return nil, fmt.Errorf("prepare the control plane: %w", err)
	}
	if err := c.startAll(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), c.Stop())
	}
	c.report("control plane ready at %s after %.1fs", c.URL, time.Since(began).Seconds())
	return c, nil
}

// prepare makes files and the watchdog, and starts no component yet.
func prepare(o Options) (*Cluster, error) {
	binDir, err := o.binDir()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts()
	if err != nil {
		return nil, err
	}
	dir, temporary, err := o.makeDir()
	if err != nil {
		return nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	c := &Cluster{
		URL: "https://" + local(ports.apiServer), Dir: dir, BinDir: binDir,
		ports: ports, temporary: temporary, out: o.Out,
		hasKwok:   o.Kwok,
		processes: map[Component]*process{}, nodeCount: map[string]int{},
	}
	c.AuditLog = c.path("audit.log")
	c.Kubeconfig = c.path("admin.kubeconfig")
	if err := c.writeFiles(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	removedWithUs := ""
	if temporary {
		removedWithUs = dir
	}
	if c.watchdog, err = startWatchdog(c.path("run"), removedWithUs); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	c.addProcesses(o)
	return c, nil
}

// startAll starts etcd, then the API server, then the rest at once: each exits when the one before doesn't answer.
func (c *Cluster) startAll(ctx context.Context) error {
	for _, component := range []Component{Etcd, APIServer} {
		if err := c.StartComponent(ctx, component); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for component := range c.processes {
		if component != Etcd && component != APIServer {
			group.Go(func() error { return c.StartComponent(ctx, component) })
		}
	}
	return group.Wait()
}

// StartComponent starts a component that was stopped or killed, with the flags it had, and waits until it is ready.
func (c *Cluster) StartComponent(ctx context.Context, component Component) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began := time.Now()
	if err := p.start(); err != nil {
		return err
	}
	if err := p.waitReady(ctx); err != nil {
		return err
	}
	c.report("%s ready after %.1fs", component, time.Since(began).Seconds())
	return nil
}

// StopComponent ends a component in an orderly way and waits until it is gone.
func (c *Cluster) StopComponent(component Component) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	p.stop(stopGrace)
	return nil
}

// Kill sends sig to a component and doesn't wait for the effect.
func (c *Cluster) Kill(component Component, sig syscall.Signal) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	return p.signal(sig)
}

// RestartAPIServer stops the API server and starts it on the same port with the same data.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	if err := c.StopComponent(APIServer); err != nil {
		return err
	}
	return c.StartComponent(ctx, APIServer)
}

// Log is the file that a component writes its output to.
func (c *Cluster) Log(component Component) string { return c.path("logs", string(component)+".log") }

// LogTail is the end of what a component wrote, of at most so many lines.
func (c *Cluster) LogTail(component Component, lines int) string {
	return logTail(c.Log(component), lines)
}

// KeepLogs has Stop leave the logs and the audit log, and says in which directory they stay.
func (c *Cluster) KeepLogs() (dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepsLogs = true
	return c.Dir
}

// Stop ends every process and waits until they are gone, and removes the temporary directory. Further calls do nothing
// and give the first one's error.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() { c.stopErr = c.stop() })
	return c.stopErr
}

func (c *Cluster) stop() error {
	var group errgroup.Group
	c.processesMu.RLock()
	defer c.processesMu.RUnlock()
	for _, p := range c.processes {
		group.Go(func() error { // what they hold in memory dies with the cluster: no grace
			p.stop(0)
			return nil
		})
	}
	_ = group.Wait()
	if c.client != nil { // else its idle connections would outlive the cluster
		c.closeIdleConnections()
	}
	err := c.tidy()
	if c.watchdog != nil { // only now: it kills what is still registered
		err = errors.Join(err, c.watchdog.dismiss())
	}
	if err != nil {
		return fmt.Errorf("stop the control plane: %w", err)
	}
	return nil
}

// tidy removes what nobody needs any more.
func (c *Cluster) tidy() error {
	c.mu.Lock()
	keep := c.keepsLogs
	c.mu.Unlock()
	switch {
	case !c.temporary:
		return os.RemoveAll(c.path("run"))
	case !keep:
		return os.RemoveAll(c.Dir)
	}
	entries, err := os.ReadDir(c.Dir)
	for _, entry := range entries {
		if path := c.path(entry.Name()); path != c.AuditLog && path != filepath.Dir(c.Log(APIServer)) {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

func (c *Cluster) process(component Component) (*process, error) {
	c.processesMu.RLock()
	defer c.processesMu.RUnlock()
	p := c.processes[component]
	if p == nil {
		return nil, fmt.Errorf("this cluster has no %s: ask for it in Options", component)
	}
	return p, nil
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

func (c *Cluster) report(format string, args ...any) {
	if c.out == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintf(c.out, format+"\n", args...) // progress that nobody reads is no reason to fail
}
