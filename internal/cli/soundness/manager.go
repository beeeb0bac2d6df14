package soundness

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// webhookConfiguration is the webhook's.
const webhookConfiguration = "autohealer"

// soon is how long before its end a CA is told of. The manager makes the next one long before.
const soon = 7 * 24 * time.Hour

func keyOf(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

// certificates looks at the CAs by which the API server knows the webhook. Whether they are the right ones, the verdicts tell.
func (c *Checker) certificates(ctx context.Context) ([]Finding, error) {
	var stored admissionregistrationv1.ValidatingWebhookConfiguration
	if err := c.Client.Get(ctx, types.NamespacedName{Name: webhookConfiguration}, &stored); err != nil {
		return nil, client.IgnoreNotFound(err) // that it is missing is told of already
	}
	var found []Finding
	for _, hook := range stored.Webhooks {
		if why := badBundle(hook.ClientConfig.CABundle, c.Clock.Now()); why != "" {
			found = append(found, Finding{"the CA bundle of webhook " + hook.Name + " " + why, "The manager publishes it, once it runs and may patch that configuration. " + c.logs()})
		}
	}
	return found, nil
}

// badBundle says what is wrong with a CA bundle; "" when one of its CAs will hold for a while.
func badBundle(bundle []byte, now time.Time) string {
	if len(bundle) == 0 {
		return "is empty"
	}
	authorities, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		return fmt.Sprintf("can't be read: %v", err)
	}
	last := slices.MaxFunc(authorities, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	switch left := last.NotAfter.Sub(now); {
	case left <= 0:
		return "expired " + last.NotAfter.UTC().Format(time.RFC3339)
	case left < soon:
		return "expires " + last.NotAfter.UTC().Format(time.RFC3339) + ", and no other CA follows"
	}
	return ""
}

func (c *Checker) manager(ctx context.Context) ([]Finding, error) {
	var found []Finding
	lease := &coordinationv1.Lease{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.Manager}, lease)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil || !held(lease, c.Clock.Now()) {
		found = append(found, Finding{"no manager leads, so nothing is done and nothing undone", fmt.Sprintf("See its pods: kubectl -n %s get pods. %s", c.Namespace, c.logs())})
	}
	d := &appsv1.Deployment{}
	err = c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.Manager}, d)
	if apierrors.IsNotFound(err) {
		return found, nil // it may run outside the cluster
	}
	if err != nil {
		return found, err
	}
	if wanted := ptr.Deref(d.Spec.Replicas, 1); d.Status.ReadyReplicas < wanted || wanted == 0 {
		found = append(found, Finding{fmt.Sprintf("%d of %d replicas of the manager are ready", d.Status.ReadyReplicas, wanted), fmt.Sprintf("See why: kubectl -n %s describe pods; docs/how-to/install.md, If the manager doesn't get ready. %s", c.Namespace, c.logs())})
	}
	return found, nil
}

// held says whether somebody holds a Lease.
func held(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	return ptr.Deref(s.HolderIdentity, "") != "" && s.RenewTime != nil && now.Sub(s.RenewTime.Time) < time.Duration(ptr.Deref(s.LeaseDurationSeconds, 0))*time.Second
}

// installations looks for another one: their managers don't elect one leader.
func (c *Checker) installations(ctx context.Context) ([]Finding, error) {
	var found []Finding
	for _, look := range []func(context.Context) ([]string, error){c.otherMark, c.otherLeaders, c.otherManagers, c.otherWebhooks, c.otherAccounts} {
		others, err := look(ctx)
		if err != nil {
			return sorted(found), err
		}
		for _, other := range others {
			found = append(found, Finding{"there seems to be a second installation: " + other, "The one acts that the annotation " + v1alpha1.AnnotationInstallation + " of validatingwebhookconfiguration/" + webhookConfiguration + " names; the other stands aside, unless it is of a version that doesn't know of that. Remove one; to remove all of both: kubectl autohealer uninstall, after deleting what is named here."})
		}
	}
	return sorted(found), nil
}

// otherMark says whose the cluster is when it isn't ours. A mark whose namespace is gone is replaced by whoever comes next.
func (c *Checker) otherMark(ctx context.Context) (others []string, err error) {
	var stored admissionregistrationv1.ValidatingWebhookConfiguration
	if err := c.Client.Get(ctx, types.NamespacedName{Name: webhookConfiguration}, &stored); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	name, uid, _ := strings.Cut(stored.Annotations[v1alpha1.AnnotationInstallation], "/")
	if name == "" || name == c.Namespace {
		return nil, nil
	}
	var namespace corev1.Namespace
	if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if string(namespace.UID) != uid {
		return nil, nil
	}
	return []string{fmt.Sprintf("the cluster is marked as that of the one in namespace %s, and the one in namespace %s stands aside", name, c.Namespace)}, nil
}

func (c *Checker) otherLeaders(ctx context.Context) (others []string, err error) {
	var leases coordinationv1.LeaseList
	err = c.Client.List(ctx, &leases)
	for i := range leases.Items {
		if l := &leases.Items[i]; l.Name == c.Manager && l.Namespace != c.Namespace && held(l, c.Clock.Now()) {
			others = append(others, fmt.Sprintf("%s leads by the Lease %s in namespace %s", *l.Spec.HolderIdentity, l.Name, l.Namespace))
		}
	}
	return others, err
}

func (c *Checker) otherManagers(ctx context.Context) (others []string, err error) {
	var deployments appsv1.DeploymentList
	err = c.Client.List(ctx, &deployments, client.MatchingLabels{"app.kubernetes.io/name": "autohealer", "app.kubernetes.io/component": "manager"})
	for i := range deployments.Items {
		if d := &deployments.Items[i]; d.Namespace != c.Namespace || d.Name != c.Manager {
			others = append(others, fmt.Sprintf("Deployment %s in namespace %s", d.Name, d.Namespace))
		}
	}
	return others, err
}

func (c *Checker) otherWebhooks(ctx context.Context) (others []string, err error) {
	var all admissionregistrationv1.ValidatingWebhookConfigurationList
	err = c.Client.List(ctx, &all)
	for i := range all.Items {
		for _, hook := range all.Items[i].Webhooks {
			if all.Items[i].Name != webhookConfiguration && strings.HasSuffix(hook.Name, "."+v1alpha1.GroupVersion.Group) {
				others = append(others, fmt.Sprintf("ValidatingWebhookConfiguration %s has the webhook %s", all.Items[i].Name, hook.Name))
			}
		}
	}
	return others, err
}

func (c *Checker) otherAccounts(ctx context.Context) (others []string, err error) {
	var all rbacv1.ClusterRoleBindingList
	err = c.Client.List(ctx, &all)
	for i := range all.Items {
		b := &all.Items[i]
		if b.RoleRef.Kind != "ClusterRole" || b.RoleRef.Name != c.Manager {
			continue
		}
		for _, s := range b.Subjects {
			if s.Namespace != c.Namespace || s.Name != c.Manager {
				others = append(others, fmt.Sprintf("ClusterRoleBinding %s gives the manager's rights to %s %s/%s", b.Name, s.Kind, s.Namespace, s.Name))
			}
		}
	}
	return others, err
}
