package main

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/survey"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// newSurvey previews ProbeConfigs on what the manager's informers know, and reads live only what a config names.
func newSurvey(ctx context.Context, mgr ctrl.Manager, o options, facts *kube.Facts, rights authorizer.UnconditionalAuthorizer) (*survey.Survey, error) {
	informers := &survey.Informers{Cache: mgr.GetCache(), Yard: facts.Yard}
	if err := informers.Follow(ctx); err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make the client of discovery: %w", err)
	}
	return &survey.Survey{
		Cluster: informers,
		Objects: &survey.Live{
			Reader: mgr.GetAPIReader(), Scales: mgr.GetClient().SubResource("scale"), Kinds: kinds,
			Policy: kubeconfig.Policy{AllowLoopback: o.probeLoopback},
		},
		Rights: rights, OwnNamespace: o.namespace, Pace: survey.NewPace(),
	}, nil
}
