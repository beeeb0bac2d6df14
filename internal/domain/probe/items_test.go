package probe_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// known are the dependents by namespace.
type known map[string][]probe.DependentFacts

// of is the world that a config finds.
func (k known) of(c *probe.Config) probe.ClusterState {
	w := probe.ClusterState{Namespaces: []string{c.Namespace}, Targets: map[string]probe.TargetFacts{}}
	if c.Namespaces != nil {
		w.Namespaces = []string{"a", "b", "unknown"}
	}
	for namespace, dependents := range k {
		w.Targets[namespace] = probe.TargetFacts{Dependents: dependents}
	}
	return w
}

// tell writes items as one would say them.
func tell(o probe.Items) string {
	var out strings.Builder
	levels := func(verb string, all []probe.LevelForecast) {
		for _, l := range all {
			fmt.Fprintf(&out, " %s%d", verb, l.Level)
			for _, c := range l.Changes {
				fmt.Fprintf(&out, " %s:%d>%d", c.Name, c.From, c.To)
			}
		}
	}
	for _, t := range o.Targets {
		out.WriteString(t.Namespace + ":")
		levels("down", t.Down)
		levels("up", t.Up)
		for _, f := range t.Findings {
			fmt.Fprintf(&out, " %s=%s", f.Name, f.Reason)
		}
		out.WriteString("; ")
	}
	for _, s := range o.Restores {
		fmt.Fprintf(&out, "gives back %s/%s:%d; ", s.Namespace, s.Ref.Name, s.PreviousReplicas)
	}
	return strings.TrimSuffix(out.String(), "; ")
}

func TestAForecastGoesThroughTheLevelsAsTheManagerDoes(t *testing.T) {
	at := func(level int, delay time.Duration) probe.ScaleParameters {
		return probe.ScaleParameters{Level: level, Delay: delay, Timeout: time.Minute}
	}
	deployment := func(name string, down, up probe.ScaleParameters) probe.Dependent {
		return probe.Dependent{Ref: probe.Ref{"apps/v1", "Deployment", name}, ScaleDown: down, ScaleUp: up}
	}
	config := func(change func(*probe.Config)) *probe.Config {
		c := &probe.Config{UID: "u", Namespace: "a", Name: "c", Dependents: []probe.Dependent{
			deployment("kcm", at(1, time.Minute), at(0, 0)), deployment("mcm", at(1, 0), at(1, 0)), deployment("ca", at(0, 0), at(1, 0)),
		}}
		change(c)
		return c
	}
	down := func(namespace, name string, replicas int32) v1alpha1.ScaledDependent {
		return v1alpha1.ScaledDependent{
			Namespace: namespace, Ref: v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			PreviousReplicas: replicas, Since: metav1.NewTime(start),
		}
	}
	world := known{"a": {{Replicas: 2}, {Replicas: 1}, {Replicas: 1}}, "b": {{Missing: true}, {}, {Unscalable: true}}}
	for name, tt := range map[string]struct {
		config *probe.Config
		known  known
		scaled []v1alpha1.ScaledDependent
		want   string
	}{
		"level by level, after delays too, and back in the other order": {config(func(*probe.Config) {}), world, nil,
			"a: down0 ca:1>0 down1 mcm:1>0 kcm:2>0 up0 kcm:0>2 up1 mcm:0>1 ca:0>1"},
		"in every namespace of which something is known": {config(func(c *probe.Config) { c.Namespaces = labels.Everything() }), world, nil,
			"a: down0 ca:1>0 down1 mcm:1>0 kcm:2>0 up0 kcm:0>2 up1 mcm:0>1 ca:0>1; b: kcm=DependentMissing ca=NotScalable"},
		"what is down already is given back with the rest": {config(func(*probe.Config) {}), known{"a": {{}, {Replicas: 1}, {}}},
			[]v1alpha1.ScaledDependent{down("a", "kcm", 2)}, "a: down1 mcm:1>0 up0 kcm:0>2 up1 mcm:0>1"},
		"what the config doesn't ask for any more is given back at once": {config(func(*probe.Config) {}), world,
			[]v1alpha1.ScaledDependent{down("a", "former", 3), down("departed", "kcm", 1)},
			"a: down0 ca:1>0 down1 mcm:1>0 kcm:2>0 up0 kcm:0>2 up1 mcm:0>1 ca:0>1; gives back a/former:3; gives back departed/kcm:1"},
		"one that observes gives everything back": {config(func(c *probe.Config) { c.Observe = true }), known{},
			[]v1alpha1.ScaledDependent{down("a", "kcm", 2)}, "gives back a/kcm:2"},
	} {
		t.Run(name, func(t *testing.T) {
			ahead := &probe.Simulation{Now: start, Scaled: tt.scaled}
			if got := tell(probe.ForecastOf(tt.config, limit.Builtin(), tt.known.of(tt.config), ahead).Items); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
