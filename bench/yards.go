package main

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/webhooks"
)

// yard is one namespace, in memory: each of its Services has as many dependents, and a stored config that is about it.
type yard struct {
	path           string
	pods, services int
}

// yards are what WeederConfigs are judged over; the first is the reference. What the one that is judged selects is the same.
var yards = []yard{{"/few-pods", 40, 4}, {"/many-pods", 10000, 1000}}

// hook judges a new config for one of the Services.
func (y yard) hook() (hook, error) {
	facts, err := factsOf(10, 10)
	if err != nil {
		return hook{}, err
	}
	if err := y.fill(facts); err != nil {
		return hook{}, err
	}
	rules, err := guard.New(guard.Options{
		Facts: facts, Planners: map[string]guard.Planner{"WeederConfig": guard.PlannerOf(facts.PreviewWeederConfig)},
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
	})
	if err != nil {
		return hook{}, fmt.Errorf("make a guard: %w", err)
	}
	body, err := reviewOf(weeder("new", serviceName(0)), "weederconfigs")
	return hook{webhooks.New(rules), body}, err
}

// weeder is a config for one Service.
func weeder(name, service string) *v1alpha1.WeederConfig {
	return &v1alpha1.WeederConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WeederConfig"},
		ObjectMeta: metav1.ObjectMeta{Namespace: weedNamespace, Name: name},
		Spec:       v1alpha1.WeederConfigSpec{ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{service: dependants(service)}},
	}
}

func (y yard) fill(facts *kube.Facts) error {
	at, controls := weed.Moment(facts.Moment()), true
	for i := range y.pods {
		of := serviceName(i % y.services)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: weedNamespace, Name: "pod-" + strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), CreationTimestamp: metav1.NewTime(at.Now.Add(-time.Hour)),
			Labels:          map[string]string{dependsOn: of, "app": "bench", "pod-template-hash": "5d8b7c9f6d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of-" + of + "-5d8b7c9f6d", UID: "bench", Controller: &controls}},
		}}
		facts.Yard.ObservePod(weed.ReadPod(pod), at)
	}
	for i := range y.services {
		name := serviceName(i)
		meta := metav1.ObjectMeta{Namespace: weedNamespace, Name: name, UID: types.UID(name), Labels: map[string]string{discoveryv1.LabelServiceName: name}}
		facts.Yard.ObserveService(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: map[string]string{"behind": name}}})
		behind := discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "behind-" + name}}
		facts.Yard.ObserveSlice(&discoveryv1.EndpointSlice{ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{behind}}, at)
		if i == 0 {
			continue // the one that is judged is about it
		}
		stored := weeder("of-"+name, name)
		stored.UID, stored.Generation = types.UID(name), 1
		c, err := weed.NewConfig(stored, "")
		if err != nil {
			return fmt.Errorf("read a config: %w", err)
		}
		facts.Yard.ObserveConfig(c, lifecycle.Active, at)
	}
	return nil
}
