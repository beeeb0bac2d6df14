package manager

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// uninstallCheck is the argument with which the program only says whether it may go. The Helm chart asks before it deletes the manager:
// policies whose finalizer waits for a manager would wait for ever.
const uninstallCheck = "uninstall-check"

// mostNamed is how many policies are named.
const mostNamed = 20

// checkUninstall gives the exit code: 0 the manager may go, 1 it may not, 2 that can't be told.
func checkUninstall(ctx context.Context, flags *flag.FlagSet, args []string, out io.Writer) int {
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		fmt.Fprintf(out, "autohealer: %s takes no argument but --kubeconfig\n", uninstallCheck)
		return 2
	}
	var left []string
	config, err := ctrl.GetConfig()
	if err == nil {
		var client metadata.Interface
		if client, err = metadata.NewForConfig(config); err == nil {
			left, err = notUndone(ctx, client)
		}
	}
	switch {
	case err != nil:
		fmt.Fprintf(out, "Whether Autohealer has something to undo can't be told: %v\n", err)
		return 2
	case len(left) > 0:
		fmt.Fprint(out, refusal(left))
		return 1
	}
	fmt.Fprintln(out, "No policy keeps a record of what it did: the manager may go.")
	return 0
}

// notUndone names the policies with the finalizer. A kind that isn't installed has none.
func notUndone(ctx context.Context, client metadata.Interface) (left []string, err error) {
	for _, k := range finalized() {
		resource := client.Resource(v1alpha1.GroupVersion.WithResource(k.Plural()))
		list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) })
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			policy := object.(*metav1.PartialObjectMetadata)
			if !slices.Contains(policy.Finalizers, v1alpha1.FinalizerUndo) {
				return nil
			}
			name := k.Name() + " " + policy.Name
			if policy.Namespace != "" {
				name += " in namespace " + policy.Namespace
			}
			left = append(left, name)
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list %s: %w", k.Plural(), err)
		}
	}
	return left, nil
}

// finalized are the kinds whose policies keep a finalizer until what they did is undone.
func finalized() []*kinds.Kind {
	return slices.DeleteFunc(slices.Clone(kinds.All), func(k *kinds.Kind) bool { return !k.Finalizer })
}

func refusal(left []string) string {
	what, named := fmt.Sprintf("%d policies are", len(left)), left
	if len(left) == 1 {
		what = "1 policy is"
	}
	if len(left) > mostNamed {
		named = append(slices.Clone(left[:mostNamed]), fmt.Sprintf("… and %d more", len(left)-mostNamed))
	}
	var plurals []string
	for _, k := range finalized() {
		plurals = append(plurals, k.Plural())
	}
	return fmt.Sprintf(`Autohealer isn't uninstalled: %s stored. Without the manager nobody undoes what they did, and they can't be deleted any more.
  %s
Delete them while the manager runs, and uninstall when they are gone:
  kubectl delete %s --all -A
Or have all of Autohealer removed, whatever state it is in, and uninstall then:
  kubectl autohealer uninstall
`, what, strings.Join(named, "\n  "), strings.Join(plurals, ","))
}
