// Package manager is the manager's program: admission webhook and controllers in one process. Main begins it.
package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/controllers"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/installation"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/rights"
	"github.com/resourcestack/autohealer/internal/version"
	"github.com/resourcestack/autohealer/webhooks"
)

// run is the manager's life, until ctx ends.
func run(ctx context.Context, o options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("load the kubeconfig: %w", err)
	}
	if err := o.validateTimings(config.Host); err != nil {
		return err
	}
	config.QPS = -1 // API priority and fairness governs; a limit here would delay an undo
	config.UserAgent = "autohealer-manager/" + o.built
	facts := &kube.Facts{
		Fleet: condition.NewFleet(limit.Builtin()), Weeder: weeder.NewState(limit.Builtin(), o.namespace), Targets: probe.NewFleet(limit.Builtin()),
		Timings: o.timings, Clock: clock.RealClock{}, Server: &kube.ServerClock{Clock: clock.RealClock{}},
	}
	facts.Targets.Timings = o.timings
	facts.Server.Watch(config)
	kube.BoundRequests(config, o.timings.Request())
	marker, err := newMarker(config, o)
	if err != nil {
		return err
	}
	serving := newCertificate(o, marker.Ours)
	var lock resourcelock.Interface
	var leads func() bool // nil for always: a manager that is alone
	if o.leaderElect {
		leadership, err := newLeadership(config, o, lease.Name, lease.RenewDeadline, marker)
		if err != nil {
			return err
		}
		lock, leads = leadership, leadership.Held
	}
	mgr, err := newManager(config, o, serving, lock, func() {
		marker.Doubt()
		facts.RecordWatchFailure()
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	if err := addAll(ctx, loggedReadiness{mgr}, o, facts, serving, leads, marker); err != nil {
		return err
	}
	if err := addMarker(ctx, loggedReadiness{mgr}, o, marker); err != nil {
		return err
	}
	mgr.GetLogger().Info("Starting Autohealer", "version", o.built, "namespace", o.namespace)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

func addAll(ctx context.Context, mgr ctrl.Manager, o options, facts *kube.Facts, serving certificate, leads func() bool, marker *installation.Marker) error {
	asking, err := rights.NewAuthorizer(mgr.GetConfig())
	if err != nil {
		return err
	}
	probes, err := newSurvey(ctx, mgr, o, facts, asking)
	if err != nil {
		return err
	}
	routed, err := newOutliers(ctx, mgr, o)
	if err != nil {
		return err
	}
	checked, err := newDependents(mgr, o)
	if err != nil {
		return err
	}
	rules, err := guard.New(guard.Options{
		Facts: facts, Planners: map[string]guard.Planner{
			"ConditionSet":            guard.PlannerOf(facts.ForecastConditionSet),
			"WeederConfig":            guard.PlannerOf(facts.ForecastWeederConfig),
			"ProbeConfig":             guard.PlannerThatReads(probes.Forecast),
			"OutlierPolicy":           guard.PlannerThatReads(routed.Forecast).When(routed.Synced),
			"HealthCheckRegistration": guard.PlannerThatReads(checked.Forecast),
		},
		OwnNamespace: o.namespace,
		Stored:       &kube.Policies{Cache: mgr.GetCache(), Scheme: mgr.GetScheme()}, Authorizer: asking, AwaitGuardrails: true,
		Live: mgr.GetAPIReader(),
	})
	if err != nil {
		return fmt.Errorf("make the guard: %w", err)
	}
	if err := mgr.Add(&kube.ClockStep{OnStep: facts.DeferActsUntil}); err != nil {
		return fmt.Errorf("add the watch over the clock: %w", err)
	}
	if err := serving.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("add the serving certificate: %w", err)
	}
	if err := webhooks.AddToManager(mgr, rules); err != nil {
		return fmt.Errorf("add the webhooks: %w", err)
	}
	clusters, err := newClusters(o.envoys, serving, marker.Mine)
	if err != nil {
		return err
	}
	if err := controllers.AddToManager(mgr, controllers.Options{
		Guard: rules, Facts: facts, OwnNamespace: o.namespace, Leads: leads, Protection: probes, Dial: kubeconfig.Policy{AllowLoopback: o.probeLoopback},
		OutlierInformers: routed, Clusters: clusters, Ejections: newEnvoyClient(o.envoys, routed, serving),
	}); err != nil {
		return fmt.Errorf("add the controllers: %w", err)
	}
	return addProbes(mgr, facts, serving)
}

func newManager(config *rest.Config, o options, serving certificate, lock resourcelock.Interface, interrupted func()) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                              scheme,
		Cache:                               cacheOptions(o, interrupted),
		LeaderElection:                      o.leaderElect,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionID:                    lease.Name, // which tells our leader_election_master_status from others'
		LeaseDuration:                       ptr.To(lease.Duration),
		RenewDeadline:                       ptr.To(lease.RenewDeadline),
		// Safe, because the process ends right after the manager: the next leader needn't wait for the lease to run out.
		LeaderElectionReleaseOnCancel: true,
		Metrics: metricsserver.Options{
			BindAddress: o.metricsAddress, SecureServing: true, TLSOpts: []func(*tls.Config){serving.TLSConfig},
			FilterProvider: rights.OfMetrics,
		},
		HealthProbeBindAddress: o.probeAddress,
		LivenessEndpointName:   "/livez",
		PprofBindAddress:       o.pprofAddress,
		WebhookServer:          webhooks.NewServer(o.webhookBindHost, o.webhookPort, serving.TLSConfig),
	})
}

// Main is the manager's main, and gives the exit code. Built is its version; empty for what the Go toolchain noted. With other
// timings than production's it works on this machine only.
func Main(built string, timings timing.Timings, args []string) int {
	if len(args) > 0 && args[0] == uninstallCheck {
		return checkUninstall(ctrl.SetupSignalHandler(), flag.CommandLine, args[1:], os.Stderr)
	}
	o, err := parse(flag.CommandLine, args) // the command line's set, because it has --kubeconfig already
	o.built, o.timings = version.Of(built), timings
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "autohealer:", err)
		return 2
	case o.version:
		fmt.Println(o.built)
		return 0
	}
	handler := logHandler(o, os.Stderr)
	slog.SetDefault(slog.New(handler)) // net/http's servers log there
	logger := logr.FromSlogHandler(handler)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		logger.Error(err, "The manager stops because of an error")
		return 1
	}
	return 0
}

// logHandler writes one line an entry. logr's V(n) is slog's level -n.
func logHandler(o options, out io.Writer) slog.Handler {
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}
	if o.logFormat == "text" {
		return noiseFilter{slog.NewTextHandler(out, handlerOptions)}
	}
	return noiseFilter{slog.NewJSONHandler(out, handlerOptions)}
}

// noiseFilter leaves out what libraries log at their own discretion and nobody can do anything about.
type noiseFilter struct{ slog.Handler }

// Handle writes an entry, unless it is noise.
func (h noiseFilter) Handle(ctx context.Context, entry slog.Record) error {
	noise := false
	entry.Attrs(func(a slog.Attr) bool {
		noise = isNoise(entry.Message, a)
		return !noise
	})
	if noise {
		return nil
	}
	return h.Handler.Handle(ctx, entry)
}

// eventRejected is what client-go logs, as an error, of an Event that the API server didn't take.
const eventRejected = "Server rejected event (will not retry!)"

// isNoise tells by an attribute whether an entry is noise: controller-runtime logs each failed probe, without a reason; and client-go
// each Event in a namespace that is being deleted, where nothing may be created any more.
func isNoise(message string, a slog.Attr) bool {
	switch a.Key {
	case "logger":
		return a.Value.String() == "controller-runtime/healthz"
	case "err":
		err, ok := a.Value.Any().(error)
		return ok && message == eventRejected && actuate.NamespaceEnds(err)
	}
	return false
}

// WithAttrs implements slog.Handler.
func (h noiseFilter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return noiseFilter{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h noiseFilter) WithGroup(name string) slog.Handler {
	return noiseFilter{h.Handler.WithGroup(name)}
}
