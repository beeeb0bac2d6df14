package survey

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// Protected says why an object must not be scaled down as things are now, "" for nothing: its pods are behind the Service that one
// of the servers is, each given as host:port, or they run Autohealer. Rules ask that when a config is written, of a part of a
// fan-out; this is for just before the act. The error is that it can't be found out.
func (s *Survey) Protected(ctx context.Context, namespace string, servers []string, ref probe.Ref) (why string, err error) {
	d, err := s.Objects.Dependent(ctx, namespace, ref)
	if err != nil || d.Pods == "" {
		return "", err
	}
	pods, err := labels.Parse(d.Pods)
	if err != nil {
		return "", fmt.Errorf("read the selector of %s in namespace %s: %w", ref, namespace, err)
	}
	switch own, err := s.runsAutohealer(ctx, namespace, pods); {
	case err != nil:
		return "", err
	case own:
		return "its pods run Autohealer itself", nil
	}
	for _, server := range servers {
		service, err := s.serviceOf(ctx, namespace, server)
		if err != nil {
			return "", err
		}
		if service.Namespace == namespace && s.Cluster.Backs(types.NamespacedName{Namespace: namespace, Name: service.Name}, pods) {
			return fmt.Sprintf("its pods are behind Service %s, which is probed", service.Name), nil
		}
	}
	return "", nil
}

// runsAutohealer says whether our own pod is one of those.
func (s *Survey) runsAutohealer(ctx context.Context, namespace string, pods labels.Selector) (bool, error) {
	if namespace != s.OwnNamespace || s.OwnPod == nil {
		return false, nil
	}
	own, err := s.OwnPod(ctx)
	if err != nil {
		return false, fmt.Errorf("find out what runs Autohealer: %w", err)
	}
	return own != nil && pods.Matches(own), nil
}
