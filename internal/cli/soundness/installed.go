package soundness

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/config"
	"github.com/resourcestack/autohealer/crds"
)

type object = unstructured.Unstructured

// stored reads what is installed under an object's name; nil when there is nothing.
func (c *Checker) stored(ctx context.Context, wanted *object) (*object, error) {
	o := &object{}
	o.SetGroupVersionKind(wanted.GroupVersionKind())
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(wanted), o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	return o, err
}

func title(o *object) string { return strings.ToLower(o.GetKind()) + "/" + o.GetName() }

// differs gives the path of the first field of wanted that is another one in stored, "" when there is none. What stored has
// beyond that are the API server's defaults.
func differs(path string, wanted, stored any) string {
	switch wanted := wanted.(type) {
	case map[string]any:
		stored, same := stored.(map[string]any)
		if !same {
			return path
		}
		for key, value := range wanted {
			if at := differs(path+"."+key, value, stored[key]); at != "" {
				return at
			}
		}
		return ""
	case []any:
		stored, same := stored.([]any)
		if !same || len(stored) != len(wanted) {
			return path
		}
		for i, value := range wanted {
			if at := differs(fmt.Sprintf("%s[%d]", path, i), value, stored[i]); at != "" {
				return at
			}
		}
		return ""
	}
	if fmt.Sprint(wanted) != fmt.Sprint(stored) { // numbers may be of several types
		return path
	}
	return ""
}

// compare compares a field of installed objects with that of this version.
func (c *Checker) compare(ctx context.Context, wanted []*object, field string) ([]Finding, error) {
	var found []Finding
	for _, w := range wanted {
		stored, err := c.stored(ctx, w)
		switch {
		case err != nil:
			return found, err
		case stored == nil:
			found = append(found, Finding{title(w) + " is missing", reapply})
			continue
		case stored.GetDeletionTimestamp() != nil:
			found = append(found, Finding{title(w) + " is being deleted", "Wait until it is gone, or see what it waits for: kubectl get " + strings.Replace(title(w), "/", " ", 1) + " -o yaml. Then install again."})
			continue
		}
		if at := differs(field, w.Object[field], stored.Object[field]); at != "" {
			found = append(found, Finding{fmt.Sprintf("%s is of another version than this plugin, or was changed: %s differs", title(w), at), reapply})
		}
	}
	return sorted(found), nil
}

func (c *Checker) kinds(ctx context.Context) ([]Finding, error) {
	wanted, err := config.Objects(crds.FS, "*.yaml", "CustomResourceDefinition")
	if err != nil {
		return nil, err
	}
	found, err := c.compare(ctx, wanted, "spec")
	if err != nil || len(found) > 0 {
		return found, err
	}
	for _, w := range wanted {
		stored, err := c.stored(ctx, w)
		if err != nil || stored == nil {
			return found, err
		}
		if !established(stored) {
			found = append(found, Finding{title(w) + " isn't established", "See why: kubectl describe crd " + w.GetName()})
		}
	}
	return found, nil
}

func established(crd *object) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, isMap := c.(map[string]any); isMap && c["type"] == "Established" {
			return c["status"] == "True"
		}
	}
	return false
}

func (c *Checker) policies(ctx context.Context) ([]Finding, error) {
	wanted, err := config.Objects(config.FS, "policy/*.yaml", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	if err != nil {
		return nil, err
	}
	return c.compare(ctx, wanted, "spec")
}

func (c *Checker) webhook(ctx context.Context) ([]Finding, error) {
	wanted, err := config.Objects(config.FS, "webhook/configuration/validating.yaml", "ValidatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	for _, w := range wanted {
		webhooks, _, _ := unstructured.NestedSlice(w.Object, "webhooks")
		for _, hook := range webhooks {
			delete(hook.(map[string]any), "clientConfig") // where it is called is for whoever installs it
			delete(hook.(map[string]any), "timeoutSeconds")
		}
		w.Object["webhooks"] = webhooks
	}
	return c.compare(ctx, wanted, "webhooks")
}
