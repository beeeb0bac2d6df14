package admission

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
)

// manifest is a ConditionSet as a user writes it; spec is a YAML flow mapping.
func manifest(name, spec string) string {
	return fmt.Sprintf("apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: ConditionSet\nmetadata:\n  name: %s\nspec: %s\n", name, spec)
}

// object is the same for a client; the spec's numbers are int64, as in everything that comes from an API server.
func object(name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	text, err := yaml.YAMLToJSON([]byte(manifest(name, spec)))
	Expect(err).NotTo(HaveOccurred())
	u := &unstructured.Unstructured{}
	Expect(u.UnmarshalJSON(text)).To(Succeed())
	return u
}

// file writes a manifest to where kubectl reads it.
func file(manifest string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "set.yaml")
	Expect(os.WriteFile(path, []byte(manifest), 0o600)).To(Succeed())
	return path
}

// kubectl gives what a terminal shows, warnings included, and whether kubectl failed.
func kubectl(ctx context.Context, args ...string) (string, error) {
	var terminal bytes.Buffer
	err := h.KubectlTo(ctx, &terminal, args...)
	return strings.TrimSpace(terminal.String()), err
}

// accepted runs kubectl, which must succeed, and gives what the terminal shows.
func accepted(ctx context.Context, args ...string) string {
	GinkgoHelper()
	output, err := kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// refused runs kubectl, which must fail, and gives what the terminal shows.
func refused(ctx context.Context, args ...string) string {
	GinkgoHelper()
	output, err := kubectl(ctx, args...)
	Expect(err).To(HaveOccurred(), "kubectl should have failed: %s", output)
	return output
}

// get reads a set as it is stored.
func get(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ConditionSet"))
	err := h.Client.Get(ctx, types.NamespacedName{Name: name}, u)
	return u, err
}

// typed reads a set with its status.
func typed(ctx context.Context, name string) (*v1alpha1.ConditionSet, error) {
	set := &v1alpha1.ConditionSet{}
	return set, h.Client.Get(ctx, types.NamespacedName{Name: name}, set)
}

// create stores a set, for as long as the spec lasts.
func create(ctx context.Context, name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	removedAfterwards(name)
	u := object(name, spec)
	Expect(h.Client.Create(ctx, u)).To(Succeed())
	return u
}

// removedAfterwards deletes a set when the spec ends, and waits until its finalizer is gone too.
func removedAfterwards(name string) {
	DeferCleanup(func(ctx context.Context) {
		u, err := get(ctx, name)
		if err == nil {
			err = h.Client.Delete(ctx, u)
		}
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Eventually(ctx, func() bool {
			_, err := get(ctx, name)
			return apierrors.IsNotFound(err)
		}).Should(BeTrue(), "ConditionSet %s was deleted, and stays", name)
	})
}

// condition of a set as the API server has it, judged at its present generation; nil while there is none.
func condition(ctx context.Context, name, conditionType string) *metav1.Condition {
	set, err := typed(ctx, name)
	if err != nil {
		return nil
	}
	for _, c := range set.Status.Conditions {
		if c.Type == conditionType && c.ObservedGeneration == set.Generation {
			return &c
		}
	}
	return nil
}

// conditionOf is condition, to be polled.
func conditionOf(name, conditionType string) func(context.Context) string {
	return func(ctx context.Context) string {
		c := condition(ctx, name, conditionType)
		if c == nil {
			return "absent"
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
}

// nodes adds nodes for as long as the spec lasts.
func nodes(ctx context.Context, n int, prefix string) []string {
	GinkgoHelper()
	names, err := h.AddNodes(ctx, n, cluster.NodeOptions{Prefix: prefix, Labels: map[string]string{"e2e": prefix}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		for _, name := range names {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			Expect(client.IgnoreNotFound(h.Client.Delete(ctx, node))).To(Succeed())
		}
	})
	return names
}

// report sets a condition of nodes, as their reporters do.
func report(ctx context.Context, conditionType string, status corev1.ConditionStatus, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Expect(h.SetCondition(ctx, name, corev1.NodeConditionType(conditionType), status, cluster.ConditionOptions{Reason: "Reported"})).To(Succeed())
	}
}

// taints of a node, by key.
func taints(ctx context.Context, name string) (map[string]corev1.TaintEffect, error) {
	var node corev1.Node
	if err := h.Client.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		return nil, err
	}
	effects := map[string]corev1.TaintEffect{}
	for _, taint := range node.Spec.Taints {
		effects[taint.Key] = taint.Effect
	}
	return effects, nil
}

// taintsOf is taints, to be polled.
func taintsOf(name string) func(context.Context) (map[string]corev1.TaintEffect, error) {
	return func(ctx context.Context) (map[string]corev1.TaintEffect, error) { return taints(ctx, name) }
}

// selectable counts the nodes that a set without a selector is about.
func selectable(ctx context.Context) (int, error) {
	var list corev1.NodeList
	err := h.Client.List(ctx, &list)
	return len(list.Items), err
}
