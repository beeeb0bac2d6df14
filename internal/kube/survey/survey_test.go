package survey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// town is a cluster that tests write down, and its objects.
type town struct {
	namespaces map[string]labels.Set
	addresses  map[string]string // Service by namespace/host
	backing    map[string]labels.Set
	scalers    map[string][]Autoscaler
	configs    []v1alpha1.ProbeConfig

	kubeconfigs map[string]probe.KubeconfigFacts
	dependents  map[string]probe.DependentFacts
	annotations map[string]map[string]string
	failing     error

	mu   sync.Mutex
	read []string // needs mu
}

func (t *town) Namespaces(_ context.Context, selector labels.Selector) ([]string, error) {
	var names []string
	for name, set := range t.namespaces {
		if selector.Matches(set) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (t *town) Holds(_ context.Context, selector labels.Selector, namespace string) (bool, error) {
	set, there := t.namespaces[namespace]
	return there && selector.Matches(set), nil
}

func (t *town) Counts(context.Context) (Counts, error) { return CountsOf(t.configs), nil }

func (t *town) ServiceAt(_ context.Context, namespace, host string) (string, error) {
	return t.addresses[namespace+"/"+host], nil
}

func (t *town) Backs(service types.NamespacedName, pods labels.Selector) bool {
	set, there := t.backing[service.String()]
	return there && pods.Matches(set)
}

func (t *town) Annotations(_ context.Context, namespace string, ref probe.Ref) (map[string]string, error) {
	return t.annotations[ref.Name], t.note(namespace + "/" + ref.Name + " annotations")
}

func (t *town) RunsAutohealer(namespace string, pods labels.Selector) bool {
	return namespace == "autohealer-system" && pods.Matches(labels.Set{"app": "healer"})
}

func (t *town) Autoscalers(_ context.Context, namespace string) ([]Autoscaler, error) {
	return t.scalers[namespace], nil
}

func (t *town) Configs(_ context.Context, namespace string) ([]v1alpha1.ProbeConfig, error) {
	return slices.DeleteFunc(slices.Clone(t.configs), func(pc v1alpha1.ProbeConfig) bool { return namespace != "" && pc.Namespace != namespace }), nil
}

func (t *town) note(what string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read = append(t.read, what)
	return t.failing
}

func (t *town) Kubeconfig(_ context.Context, namespace, secret string) (probe.KubeconfigFacts, error) {
	return t.kubeconfigs[secret], t.note(namespace + "/" + secret)
}

func (t *town) Dependent(_ context.Context, namespace string, ref probe.Ref) (probe.DependentFacts, error) {
	return t.dependents[ref.Name], t.note(namespace + "/" + ref.String())
}

// may is an authorizer that allows or refuses everything, and keeps what it was asked.
type may struct {
	decision authorizer.Decision
	asked    []string
}

func (m *may) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	m.asked = append(m.asked, fmt.Sprintf("%s %s %s %s/%s", a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetNamespace(), a.GetName()))
	return m.decision, "", nil
}

func probeConfig(namespace, name string, dependents ...string) *v1alpha1.ProbeConfig {
	pc := &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	pc.Spec.InternalKubeConfigSecretName, pc.Spec.ExternalKubeConfigSecretName = "in", "out"
	for _, d := range dependents {
		pc.Spec.DependentResourceInfos = append(pc.Spec.DependentResourceInfos, v1alpha1.DependentResourceInfo{
			Ref:     v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: d},
			ScaleUp: &v1alpha1.ScaleInfo{}, ScaleDown: &v1alpha1.ScaleInfo{},
		})
	}
	return pc
}

func everywhere(pc *v1alpha1.ProbeConfig, label string) *v1alpha1.ProbeConfig {
	pc.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
	return pc
}

func newTown() *town {
	return &town{
		kubeconfigs: map[string]probe.KubeconfigFacts{"in": {Server: "kube-apiserver.shop.svc:443"}, "out": {Server: "api.shop.example:443"}},
		dependents:  map[string]probe.DependentFacts{"kcm": {Replicas: 1, Pods: "app=kcm"}, "apiserver": {Replicas: 2, Pods: "app=apiserver"}},
		backing:     map[string]labels.Set{"shop/kube-apiserver": {"app": "apiserver"}},
	}
}

func TestWhatAConfigWouldFind(t *testing.T) {
	other := *probeConfig("shop", "other", "kcm")
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		config *v1alpha1.ProbeConfig
		with   func(*town)
		want   probe.Forecast
	}{
		"nothing amiss": {
			config: probeConfig("shop", "a", "kcm"),
			want:   probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"}},
		},
		"no Secret": {
			config: probeConfig("shop", "a", "kcm"),
			with:   func(w *town) { w.kubeconfigs["out"] = probe.KubeconfigFacts{Missing: true} },
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				MissingSecrets: 1, MissingSecretNames: []string{"shop/out"}},
		},
		"a kubeconfig that is never used": {
			config: probeConfig("shop", "a", "kcm"),
			with:   func(w *town) { w.kubeconfigs["in"] = probe.KubeconfigFacts{Unsafe: "runs a command"} },
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				UnsafeKubeconfigs: 1, UnsafeKubeconfigNames: []string{"shop/in (runs a command)"}},
		},
		"kubeconfigs that can't work any more": {
			config: probeConfig("shop", "a", "kcm"),
			with: func(w *town) {
				for secret, expires := range map[string]time.Time{"in": noon, "out": noon.Add(-time.Second)} {
					facts := w.kubeconfigs[secret]
					facts.Expires, facts.ExpiresFor = expires, "client certificate"
					w.kubeconfigs[secret] = facts
				}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				ExpiredKubeconfigs: 1, ExpiredKubeconfigNames: []string{"shop/out (its client certificate expired at 2026-03-01T11:59:59Z)"}},
		},
		"one server": {
			config: probeConfig("shop", "a", "kcm"),
			with:   func(w *town) { w.kubeconfigs["out"] = w.kubeconfigs["in"] },
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				SameServers: 1, SameServerNames: []string{"shop (kube-apiserver.shop.svc:443)"}},
		},
		"what is probed, by its DNS name": {
			config: probeConfig("shop", "a", "apiserver"),
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/apiserver"},
				BackingDependents: 1, BackingDependentNames: []string{"shop/Deployment/apiserver (kube-apiserver)"}},
		},
		"what is probed, by its load balancer": {
			config: probeConfig("shop", "a", "apiserver"),
			with: func(w *town) {
				w.kubeconfigs["in"] = probe.KubeconfigFacts{Server: "10.9.8.7:443"}
				w.addresses = map[string]string{"shop/api.shop.example": "kube-apiserver"}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/apiserver"},
				BackingDependents: 1, BackingDependentNames: []string{"shop/Deployment/apiserver (kube-apiserver)"}},
		},
		"behind a Service of its name elsewhere": {
			config: probeConfig("shop", "a", "apiserver"),
			with: func(w *town) {
				w.kubeconfigs["in"] = probe.KubeconfigFacts{Server: "kube-apiserver.elsewhere.svc:443"}
				w.backing["elsewhere/kube-apiserver"] = labels.Set{"app": "apiserver"}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/apiserver"}},
		},
		"what doesn't tell its pods, where a Service is probed": {
			config: probeConfig("shop", "a", "kcm", "plane"),
			with:   func(w *town) { w.dependents["plane"] = probe.DependentFacts{Replicas: 1} },
			want: probe.Forecast{WouldScaleDown: 2, WouldScaleDownNames: []string{"shop/Deployment/kcm", "shop/Deployment/plane"},
				UnclearDependents: 1, UnclearDependentNames: []string{"shop/Deployment/plane"}},
		},
		"Autohealer by another name": {
			config: probeConfig("autohealer-system", "a", "healer"),
			with:   func(w *town) { w.dependents["healer"] = probe.DependentFacts{Replicas: 1, Pods: "app=healer"} },
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"autohealer-system/Deployment/healer"},
				OwnDependents: 1, OwnDependentNames: []string{"autohealer-system/Deployment/healer"}},
		},
		"dependents that can't be scaled, or aren't there": {
			config: probeConfig("shop", "a", "kcm", "agent", "nobody"),
			with: func(w *town) {
				w.dependents["agent"], w.dependents["nobody"] = probe.DependentFacts{Unscalable: true}, probe.DependentFacts{Missing: true}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				UnscalableDependents: 1, UnscalableDependentNames: []string{"shop/Deployment/agent"},
				MissingDependents: 1, MissingDependentNames: []string{"shop/Deployment/nobody"}},
		},
		"an autoscaler, whatever the version it names": {
			config: probeConfig("shop", "a", "kcm"),
			with: func(w *town) {
				w.scalers = map[string][]Autoscaler{"shop": {
					{Scales: probe.Ref{APIVersion: "apps/v1beta2", Kind: "Deployment", Name: "kcm"}, Name: "ScaledObject/kcm"},
					{Scales: probe.Ref{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "kcm"}, Name: "HorizontalPodAutoscaler/of-another"},
				}}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				AutoscaledDependents: 1, AutoscaledDependentNames: []string{"shop/Deployment/kcm (ScaledObject/kcm)"}},
		},
		"another config, not itself": {
			config: probeConfig("shop", "a", "kcm"),
			with: func(w *town) {
				w.configs = []v1alpha1.ProbeConfig{other, *probeConfig("shop", "a", "kcm"), *probeConfig("elsewhere", "b", "kcm")}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				SharedDependents: 1, SharedDependentNames: []string{"shop/Deployment/kcm (shop/other)"}},
		},
		"one that only observes, and one that was refused, before it was mended": {
			config: probeConfig("shop", "a", "kcm"),
			with: func(w *town) {
				watching, refused, mended := probeConfig("shop", "watching", "kcm"), probeConfig("shop", "refused", "kcm"), probeConfig("shop", "mended", "kcm")
				watching.Spec.Mode = v1alpha1.Observe
				for _, pc := range []*v1alpha1.ProbeConfig{refused, mended} {
					pc.Generation = 2
					pc.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionFalse, ObservedGeneration: 2}}
				}
				mended.Generation = 3
				w.configs = []v1alpha1.ProbeConfig{*watching, *refused, *mended}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				SharedDependents: 1, SharedDependentNames: []string{"shop/Deployment/kcm (shop/mended)"}},
		},
		"a config that selects the namespace": {
			config: probeConfig("shop", "a", "kcm"),
			with: func(w *town) {
				w.namespaces = map[string]labels.Set{"shop": {"shoot": "true"}, "mail": {"seed": "true"}}
				w.configs = []v1alpha1.ProbeConfig{*everywhere(probeConfig("autohealer-system", "all", "kcm"), "shoot"), *everywhere(probeConfig("autohealer-system", "seeds", "kcm"), "seed")}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"},
				SharedDependents: 1, SharedDependentNames: []string{"shop/Deployment/kcm (autohealer-system/all)"}},
		},
		"a config that is being deleted": {
			config: probeConfig("shop", "a", "kcm"),
			with: func(w *town) {
				other := *other.DeepCopy()
				other.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				w.configs = []v1alpha1.ProbeConfig{other}
			},
			want: probe.Forecast{WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"}},
		},
		"every namespace that it selects": {
			config: everywhere(probeConfig("autohealer-system", "all", "kcm"), "shoot"),
			with: func(w *town) {
				w.namespaces = map[string]labels.Set{"one": {"shoot": "true"}, "two": {"shoot": "true"}, "three": {}}
			},
			want: probe.Forecast{Targets: 2, WouldScaleDown: 2, WouldScaleDownNames: []string{"one/Deployment/kcm", "two/Deployment/kcm"}},
		},
		"counts of all configs": {
			config: probeConfig("shop", "a", "kcm"),
			with: func(w *town) {
				add := func(n int32, mode v1alpha1.Mode, accepted metav1.ConditionStatus) {
					pc := probeConfig("elsewhere", "b", "x")
					pc.Spec.Mode = mode
					pc.Status.Targets = &v1alpha1.TargetCounts{Probed: n, ScaledDown: 1}
					pc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: accepted}}
					w.configs = append(w.configs, *pc)
				}
				add(5, v1alpha1.Enforce, metav1.ConditionTrue)
				add(15, v1alpha1.Enforce, metav1.ConditionTrue)
				add(100, v1alpha1.Observe, metav1.ConditionTrue)
				add(100, v1alpha1.Enforce, metav1.ConditionFalse)
			},
			want: probe.Forecast{Probed: 20, ScaledDown: 4, Limit: 4, WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/kcm"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown()
			if tt.with != nil {
				tt.with(w)
			}
			s := &Survey{Cluster: w, Objects: w, Rights: &may{decision: authorizer.DecisionAllow}, OwnNamespace: "autohealer-system"}
			got, err := s.Forecast(t.Context(), tt.config, limit.Builtin(), noon)
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Targets, tt.want.Limit = max(1, tt.want.Targets), max(1, tt.want.Limit)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestForASpecThatCannotBeReadNothingIsRead(t *testing.T) {
	w := newTown()
	s := &Survey{Cluster: w, Objects: w, OwnNamespace: "autohealer-system"}
	pc := probeConfig("shop", "a", "kcm")
	pc.Spec.ProbeInterval = "soon"
	got, err := s.Forecast(t.Context(), pc, limit.Builtin(), time.Time{})
	if diff := cmp.Diff(probe.Forecast{UnreadableSpec: got.UnreadableSpec}, got); err != nil || diff != "" || !strings.Contains(got.UnreadableSpec, "soon") || len(w.read) > 0 {
		t.Errorf("%v; read %v; -want +got\n%s", err, w.read, diff)
	}
}

func TestASecretThatTheAccountMayNotGetIsNotRead(t *testing.T) {
	for decision, want := range map[authorizer.Decision][]string{
		authorizer.DecisionNoOpinion: {"shop/Deployment/kcm"},
		authorizer.DecisionAllow:     {"shop/Deployment/kcm", "shop/in", "shop/out"},
	} {
		w, rights := newTown(), &may{decision: decision}
		s := &Survey{Cluster: w, Objects: w, Rights: rights, OwnNamespace: "autohealer-system"}
		pc := probeConfig("shop", "a", "kcm")
		pc.Spec.ServiceAccountName = "prober"
		if _, err := s.Forecast(t.Context(), pc, limit.Builtin(), time.Time{}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(w.read)
		if !slices.Equal(w.read, want) {
			t.Errorf("%v: read %q, want %q", decision, w.read, want)
		}
		asked := []string{"system:serviceaccount:shop:prober get secrets shop/in", "system:serviceaccount:shop:prober get secrets shop/out"}
		if !slices.Equal(rights.asked, asked) {
			t.Errorf("asked %q, want %q", rights.asked, asked)
		}
	}
}

func TestInItsOwnNamespaceAutohealerAsksNobody(t *testing.T) {
	w, rights := newTown(), &may{}
	s := &Survey{Cluster: w, Objects: w, Rights: rights, OwnNamespace: "autohealer-system"}
	if _, err := s.Forecast(t.Context(), probeConfig("autohealer-system", "a", "kcm"), limit.Builtin(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if len(rights.asked) > 0 || len(w.read) != 3 {
		t.Errorf("asked %q, read %q", rights.asked, w.read)
	}
}

func TestAFanOutIsLookedAtInPart(t *testing.T) {
	w := newTown()
	w.namespaces = map[string]labels.Set{}
	for i := range 300 {
		w.namespaces[fmt.Sprintf("shoot-%03d", i)] = labels.Set{"shoot": "true"}
	}
	s := &Survey{Cluster: w, Objects: w, OwnNamespace: "autohealer-system"}
	got, err := s.Forecast(t.Context(), everywhere(probeConfig("autohealer-system", "all", "kcm"), "shoot"), limit.Builtin(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Targets != 300 || got.WouldScaleDown != 50 || len(w.read) != 150 {
		t.Errorf("%d targets, %d would be scaled down, read %d objects", got.Targets, got.WouldScaleDown, len(w.read))
	}
}

// TestReviewsTogetherAskNoMoreThanTheirPace: whoever reaches the webhook can send reviews, also such as no API server ever would.
func TestReviewsTogetherAskNoMoreThanTheirPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		w.namespaces = map[string]labels.Set{}
		for i := range 50 {
			w.namespaces[fmt.Sprintf("shoot-%02d", i)] = labels.Set{"shoot": "true"}
		}
		s := &Survey{Cluster: w, Objects: w, Rights: &may{decision: authorizer.DecisionAllow}, OwnNamespace: "autohealer-system", Pace: NewPace()}
		review := func(pc *v1alpha1.ProbeConfig) error {
			ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
			defer cancel()
			_, err := s.Forecast(ctx, pc, limit.Builtin(), time.Time{})
			return err
		}
		began := time.Now()
		const reviews = 200
		var refused atomic.Int32
		var asking sync.WaitGroup
		for range reviews {
			asking.Go(func() {
				if err := review(everywhere(probeConfig("autohealer-system", "all", "kcm"), "shoot")); errors.Is(err, errBusy) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		asking.Wait()
		if most := 1000 + 200*5; len(w.read) > most || len(w.read) < 1000 || refused.Load() == 0 || time.Since(began) > 4500*time.Millisecond {
			t.Errorf("read %d objects, want up to %d; %d of %d reviews were refused, in %s", len(w.read), most, refused.Load(), reviews, time.Since(began))
		}
		time.Sleep(time.Second)
		if err := review(probeConfig("shop", "a", "kcm")); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

func TestWhatCantBeReadIsNotKnown(t *testing.T) {
	w := newTown()
	w.failing = errors.New("the API server is away")
	s := &Survey{Cluster: w, Objects: w, OwnNamespace: "autohealer-system"}
	if _, err := s.Forecast(t.Context(), probeConfig("shop", "a", "kcm"), limit.Builtin(), time.Time{}); !errors.Is(err, w.failing) {
		t.Errorf("%v", err)
	}
}

func TestWhichServiceAServerIs(t *testing.T) {
	w := newTown()
	w.addresses = map[string]string{"shop/10.0.0.1": "api", "shop/lb.example.com": "api", "shop/fd00::1": "api"}
	s := &Survey{Cluster: w, OwnNamespace: "autohealer-system"}
	got := map[string]string{}
	want := map[string]string{
		"api.shop.svc:443": "shop/api", "api.shop.svc.cluster.local:443": "shop/api", "api.shop:443": "shop/api", "api:443": "autohealer-system/api",
		"10.0.0.1:443": "shop/api", "[fd00::1]:6443": "shop/api", "lb.example.com:443": "shop/api", "api.shop.example.com:443": "/", "10.0.0.2:443": "/",
	}
	for server := range maps.Keys(want) {
		service, err := s.serviceOf(t.Context(), "shop", server)
		if err != nil {
			t.Fatal(err)
		}
		got[server] = service.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestWhatPeopleAskForIsInTheForecast(t *testing.T) {
	for name, tt := range map[string]struct {
		annotated bool
		asks      map[string]string
		want      string
	}{
		"nobody asks":                          {true, nil, ""},
		"a hold":                               {true, map[string]string{"autohealer.resourcestack.com/hold-until": "2026-03-01T13:00:00Z"}, "HoldUntil"},
		"a hold that is over":                  {true, map[string]string{"autohealer.resourcestack.com/hold-until": "2026-03-01T11:00:00Z"}, ""},
		"to be ignored":                        {true, map[string]string{"autohealer.resourcestack.com/ignore-scaling": "true"}, "AskedToIgnore"},
		"to be ignored by dependency-watchdog": {true, map[string]string{"dependency-watchdog.gardener.cloud/ignore-scaling": "1"}, "AskedToIgnore"},
		"a review doesn't ask":                 {false, map[string]string{"autohealer.resourcestack.com/ignore-scaling": "true"}, ""},
	} {
		w := newTown()
		w.annotations = map[string]map[string]string{"kcm": tt.asks}
		s := &Survey{Cluster: w, Objects: w, OwnNamespace: "autohealer-system", Annotated: tt.annotated}
		f, err := s.ForecastItems(t.Context(), probeConfig("shop", "a", "kcm"), limit.Builtin(), time.Time{}, &probe.Simulation{Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)})
		if err != nil {
			t.Fatal(err)
		}
		found, target := "", f.Items.Targets[0]
		for _, f := range target.Findings {
			found += string(f.Reason)
		}
		if found != tt.want || (len(target.Down) == 0) != (tt.want != "") {
			t.Errorf("%s: %q, down %v", name, found, target.Down)
		}
		if asked := slices.Contains(w.read, "shop/kcm annotations"); asked != tt.annotated {
			t.Errorf("%s: read %v", name, w.read)
		}
	}
}
