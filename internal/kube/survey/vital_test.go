package survey

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func TestWhatMustNotBeScaledDownAsThingsAre(t *testing.T) {
	deployment := probe.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "api"}
	for name, c := range map[string]struct {
		namespace string
		servers   []string
		pods      string
		want      string
	}{
		"behind the Service, by its name":    {"shop", []string{"example.com:443", "front.shop.svc:443"}, "app=api", "its pods are behind Service front, which is probed"},
		"behind the Service, by its address": {"shop", []string{"10.0.0.1:443"}, "app=api", "its pods are behind Service front, which is probed"},
		"behind no probed Service":           {"shop", []string{"example.com:443"}, "app=api", ""},
		"other pods":                         {"shop", []string{"10.0.0.1:443"}, "app=other", ""},
		"that doesn't tell its pods":         {"shop", []string{"10.0.0.1:443"}, "", ""},
		"Autohealer's pods, by any name":     {"healing", nil, "app in (healer, other)", "its pods run Autohealer itself"},
		"beside Autohealer":                  {"healing", nil, "app=api", ""},
		"pods like Autohealer's elsewhere":   {"shop", nil, "app=healer", ""},
	} {
		cluster := &town{
			addresses: map[string]string{"shop/10.0.0.1": "front"}, backing: map[string]labels.Set{"shop/front": {"app": "api"}},
			dependents: map[string]probe.DependentFacts{"api": {Replicas: 1, Pods: c.pods}},
		}
		s := &Survey{Cluster: cluster, Objects: cluster, OwnNamespace: "healing", OwnPod: func(context.Context) (labels.Set, error) { return labels.Set{"app": "healer"}, nil }}
		if got, err := s.Protected(t.Context(), c.namespace, c.servers, deployment); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestWhatCantBeFoundOutIsAnError(t *testing.T) {
	away := errors.New("away")
	cluster := &town{dependents: map[string]probe.DependentFacts{"api": {Pods: "app=api"}}}
	s := &Survey{Cluster: cluster, Objects: cluster, OwnNamespace: "healing", OwnPod: func(context.Context) (labels.Set, error) { return nil, away }}
	if _, err := s.Protected(t.Context(), "healing", nil, probe.Ref{Name: "api"}); !errors.Is(err, away) {
		t.Errorf("error %v", err)
	}
	cluster.failing = away
	if _, err := s.Protected(t.Context(), "shop", nil, probe.Ref{Name: "api"}); !errors.Is(err, away) {
		t.Errorf("error %v", err)
	}
}
