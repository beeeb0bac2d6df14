package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strconv"
	"testing/fstest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
	"github.com/resourcestack/autohealer/internal/kube"
)

// noop is what a webhook of controller-runtime costs that decides nothing: the reference for ours.
func noop() *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})}
}

// guardOver judges by a folder of catalogues over facts of so many nodes and sets, in memory.
func guardOver(catalogues fs.FS, nodes, sets int) (*guard.Guard, error) {
	facts, err := factsOf(nodes, sets)
	if err != nil {
		return nil, err
	}
	rules, err := guard.NewFrom(guard.Options{
		Facts: facts, Planners: map[string]guard.Planner{"ConditionSet": guard.PlannerOf(facts.PreviewConditionSet)},
	}, catalogues)
	if err != nil {
		return nil, fmt.Errorf("make a guard: %w", err)
	}
	return rules, nil
}

// catalogueOf has n rules over ConditionSets: the built-in ones, in turn, under new names.
func catalogueOf(n int) (fs.FS, error) {
	const file = "conditionset.yaml"
	text, err := catalog.FS.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	var c guard.Catalogue
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	builtin := c.Rules
	c.Rules = make([]guard.Rule, n)
	for i := range c.Rules {
		c.Rules[i] = builtin[i%len(builtin)]
		c.Rules[i].ID, c.Rules[i].Tests = fmt.Sprintf("conditionset/rule-%d", i), nil
	}
	if text, err = yaml.Marshal(c); err != nil {
		return nil, fmt.Errorf("write rules: %w", err)
	}
	return fstest.MapFS{file: {Data: text}}, nil
}

func factsOf(nodes, sets int) (*kube.Facts, error) {
	now := time.Now()
	facts := &kube.Facts{
		Fleet: condition.NewFleet(limit.Builtin()), Yard: weed.NewYard(limit.Builtin(), ""),
		Clock: clock.RealClock{}, Server: &kube.ServerClock{Clock: clock.RealClock{}},
	}
	at := condition.Moment{Now: now, Server: now}
	for i := range sets {
		cs := conditionSet(setName(i), i%50)
		cs.UID, cs.Generation = types.UID(fmt.Sprintf("set-%d", i)), 1
		set, err := condition.NewSet(cs)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", cs.Name, err)
		}
		facts.Fleet.ObserveSet(set, lifecycle.Active, nil, "", at)
	}
	for beat := range 2 { // a heartbeat seen to change proves that the reporter lives
		for i := range nodes {
			facts.Fleet.ObserveNode(reportingNode(i, beat), at)
		}
	}
	facts.Fleet.MarkSynced(at)
	facts.Yard.MarkSynced(weed.Moment(at))
	facts.Heard()
	return facts, nil
}

// reportingNode reports what the nodes of the scenarios do; one in a hundred matches a set.
func reportingNode(i, beat int) *corev1.Node {
	began := metav1.NewTime(time.Now().Truncate(time.Hour))
	heartbeat := metav1.NewTime(began.Add(time.Duration(beat) * time.Second))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: strconv.Itoa(beat + 1)}}
	for t := range typesPerNode {
		status := corev1.ConditionFalse
		if t == 0 && i%100 == 0 {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: conditionType((i + t) % 50), Status: status, LastHeartbeatTime: heartbeat, LastTransitionTime: began,
		})
	}
	return node
}

// review is an AdmissionReview as the API server sends it for a new set.
func review() ([]byte, error) { return reviewOf(newSet(), "conditionsets") }

// reviewOf is one for the creation of an object of ours.
func reviewOf(created client.Object, plural string) ([]byte, error) {
	created.SetUID("0f0c1a8e-5d1b-4f0a-9c59-3c2b1a0d9e8f")
	created.SetGeneration(1)
	created.SetCreationTimestamp(metav1.Now())
	object, err := json.Marshal(created)
	if err != nil {
		return nil, fmt.Errorf("encode what is created: %w", err)
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Name: created.GetName(), Namespace: created.GetNamespace(), Operation: admissionv1.Create,
			Kind:     metav1.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: created.GetObjectKind().GroupVersionKind().Kind},
			Resource: metav1.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Resource: plural},
			UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters", "system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object},
		},
	})
}
