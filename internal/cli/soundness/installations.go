package soundness

import (
	"context"
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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/docs"
)

// installations looks for another one: their managers don't elect one leader.
func (c *Checker) installations(ctx context.Context) ([]Finding, error) {
	found, err := c.mark(ctx)
	if err != nil {
		return found, err
	}
	var namespace corev1.Namespace
	if err := c.Client.Get(ctx, types.NamespacedName{Name: c.Namespace}, &namespace); apierrors.IsNotFound(err) {
		found = append(found, Finding{fmt.Sprintf("namespace/%s is missing, so no manager can run there", c.Namespace), reapply})
	} else if err != nil {
		return found, err
	}
	for _, check := range []func(context.Context) ([]string, error){c.otherLeaders, c.otherManagers, c.otherWebhooks, c.otherAccounts} {
		others, err := check(ctx)
		if err != nil {
			return found, err
		}
		slices.Sort(others)
		for _, other := range others {
			found = append(found, Finding{"there seems to be a second installation: " + other, "The annotation " + v1alpha1.AnnotationInstallation + " of validatingwebhookconfiguration/" + webhookConfiguration + " names the one that acts; the other does nothing, unless its version is older than that annotation. Remove one; to remove all of both: kubectl autohealer uninstall, after deleting what is named here."})
		}
	}
	return sorted(found), nil
}

// mark looks whether managers of this installation may act by the mark of the cluster. A mark whose namespace is gone is replaced by
// whoever comes next.
func (c *Checker) mark(ctx context.Context) ([]Finding, error) {
	var stored admissionregistrationv1.ValidatingWebhookConfiguration
	if err := c.Client.Get(ctx, types.NamespacedName{Name: webhookConfiguration}, &stored); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	const object, takeAway = "validatingwebhookconfiguration/" + webhookConfiguration, "kubectl annotate validatingwebhookconfiguration " + webhookConfiguration + " " + v1alpha1.AnnotationInstallation + "-"
	mark := stored.Annotations[v1alpha1.AnnotationInstallation]
	name, uid, _ := strings.Cut(mark, "/")
	switch {
	case mark == "": // the manager that comes first sets it
		return nil, nil
	case len(validation.IsDNS1123Label(name)) > 0 || uid == "":
		return []Finding{{
			fmt.Sprintf("annotation %s of %s is %q, which is no installation's, and no manager acts while it is there", v1alpha1.AnnotationInstallation, object, mark),
			"Take it away, and the manager writes its own: " + takeAway,
		}}, nil
	case name == c.Namespace:
		return nil, nil
	}
	var namespace corev1.Namespace
	if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil || string(namespace.UID) != uid {
		return nil, client.IgnoreNotFound(err)
	}
	return []Finding{{
		fmt.Sprintf("the cluster is marked as that of an installation in namespace %s, so the manager in namespace %s does nothing", name, c.Namespace),
		fmt.Sprintf("If none is there, and none was moved: %s. If there are two, remove one: %sdocs/runbooks/second-installation.md", takeAway, docs.Base),
	}}, nil
}

// otherLeaders believes what Leases say of themselves: those of other versions may last longer.
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

// held says whether somebody holds a Lease.
func held(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	return ptr.Deref(s.HolderIdentity, "") != "" && s.RenewTime != nil && now.Sub(s.RenewTime.Time) < time.Duration(ptr.Deref(s.LeaseDurationSeconds, 0))*time.Second
}
