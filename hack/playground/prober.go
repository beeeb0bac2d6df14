package main

import (
	"context"
	"fmt"
	"net/url"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
)

// probe shows what a ProbeConfig does. Its control plane is this one, and the way from outside leads through a proxy.
func (t *tour) probe(ctx context.Context) error {
	server, err := url.Parse(t.Config.Host)
	if err != nil {
		return err
	}
	outside, err := faultproxy.Start(server.Host)
	if err != nil {
		return err
	}
	defer func() { _ = outside.Stop() }()
	say("A ProbeConfig probes an API server from inside and the way that its nodes go (here: this one, by two addresses)")
	for name, address := range map[string]string{"apiserver-internal": server.Host, "apiserver-external": outside.Addr()} {
		if err := t.putKubeconfig(ctx, name, address); err != nil {
			return err
		}
	}
	config := t.sample("tenant", "probeconfig.yaml")
	if err := t.showAll(ctx,
		[]string{"create", "deployment", "controller-manager", "--image=controller-manager"},
		[]string{"apply", "-f", config},
		[]string{"wait", "--for=condition=ExternalHealthy", "--timeout=120s", "probeconfig/hosted-cluster"},
		[]string{"get", "probeconfigs"},
	); err != nil {
		return err
	}
	say("The way from outside fails. Nodes can't renew their leases now, and what would take them for dead is scaled down")
	outside.BreakNew(faultproxy.Close)
	outside.BreakOpen(faultproxy.Close)
	if err := t.awaitReplicas(ctx, 0); err != nil {
		return err
	}
	if err := t.showAll(ctx, []string{"get", "probeconfigs"}, []string{"autohealer", "explain", "deployment/controller-manager"}); err != nil {
		return err
	}
	say("It is mended. After one minute of health on both ways the Deployment has back what it had")
	outside.BreakNew(faultproxy.None)
	if err := t.awaitReplicas(ctx, 1); err != nil {
		return err
	}
	return t.showAll(ctx,
		[]string{"delete", "-f", config},
		[]string{"delete", "deployment/controller-manager", "secret/apiserver-internal", "secret/apiserver-external"},
	)
}

// putKubeconfig makes a Secret by which the API server is reached at an address.
func (t *tour) putKubeconfig(ctx context.Context, name, address string) error {
	config, err := clientcmd.LoadFromFile(t.Kubeconfig)
	if err != nil {
		return err
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + address
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return t.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"kubeconfig": text}})
}

func (t *tour) awaitReplicas(ctx context.Context, want int32) error {
	return t.until(ctx, fmt.Sprintf("%d replicas", want), func() (bool, error) {
		var d appsv1.Deployment
		err := t.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: "controller-manager"}, &d)
		return err == nil && *d.Spec.Replicas == want, err
	})
}
