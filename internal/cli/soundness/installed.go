package soundness

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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

func title(o client.Object) string {
	return strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind) + "/" + o.GetName()
}

// differs gives the path of the first field that is another one in stored than in wanted, "" when there is none; added says that
// wanted hasn't the field at all, and API servers don't set it by themselves: a selector that somebody adds takes objects from a gate.
func differs(path string, wanted, stored any) (at string, added bool) {
	switch wanted := wanted.(type) {
	case map[string]any:
		stored, same := stored.(map[string]any)
		if !same {
			return path, false
		}
		for _, key := range slices.Sorted(maps.Keys(wanted)) {
			if at, added := differs(path+"."+key, wanted[key], stored[key]); at != "" {
				return at, added
			}
		}
		return addition(path, wanted, stored)
	case []any:
		stored, same := stored.([]any)
		if !same || len(stored) != len(wanted) {
			return path, false
		}
		for i, value := range wanted {
			if at, added := differs(fmt.Sprintf("%s[%d]", path, i), value, stored[i]); at != "" {
				return at, added
			}
		}
		return "", false
	}
	if asJSON(wanted) != asJSON(stored) {
		return path, false
	}
	return "", false
}

// asJSON shows nothing of the type that a number has here.
func asJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// addition gives the path of the first field that is in stored alone and isn't a default.
func addition(path string, wanted, stored map[string]any) (at string, added bool) {
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		if _, known := wanted[key]; !known && !defaulted(key, stored[key]) {
			return path + "." + key, true
		}
	}
	return "", false
}

// defaulted says whether API servers set a field of CRDs, admission policies or webhooks to this where a manifest leaves it out.
func defaulted(key string, value any) bool {
	if inner, isMap := value.(map[string]any); isMap {
		for key, value := range inner {
			if !defaulted(key, value) {
				return false
			}
		}
		return true // as an empty selector, which selects all
	}
	return value == map[string]any{"failurePolicy": "Fail", "matchPolicy": "Equivalent", "scope": "*", "strategy": "None"}[key]
}

// compare compares a field of installed objects with that of this version, without what forget takes out of both.
func (c *Checker) compare(ctx context.Context, wanted []*object, field string, forget func(*object)) ([]Finding, error) {
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
		forget(w)
		forget(stored)
		switch at, added := differs(field, w.Object[field], stored.Object[field]); {
		case added:
			found = append(found, Finding{fmt.Sprintf("%s has a field that this version hasn't: %s", title(w), at), fmt.Sprintf("Take it away, since kubectl apply leaves what others added: kubectl edit %s.", title(w))})
		case at != "":
			found = append(found, Finding{fmt.Sprintf("%s is of another version than this plugin, or was changed: %s differs", title(w), at), reapply})
		}
	}
	return sorted(found), nil
}

func nothing(*object) {}

func (c *Checker) kinds(ctx context.Context) ([]Finding, error) {
	wanted, err := config.Objects(crds.FS, "*.yaml", "CustomResourceDefinition")
	if err != nil {
		return nil, err
	}
	found, err := c.compare(ctx, wanted, "spec", nothing)
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
	return c.compare(ctx, wanted, "spec", nothing)
}

func (c *Checker) webhook(ctx context.Context) ([]Finding, error) {
	wanted, err := config.Objects(config.FS, "webhook/configuration/validating.yaml", "ValidatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	var open []Finding
	found, err := c.compare(ctx, wanted, "webhooks", func(o *object) {
		webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, hook := range webhooks {
			hook := hook.(map[string]any)
			if hook["failurePolicy"] == "Ignore" { // no version has it so
				open = append(open, Finding{fmt.Sprintf("%s has failurePolicy Ignore, which is weaker than this version's Fail: while no manager answers, changes of policies are admitted without the webhook", title(o)),
					"If somebody chose that, as by the chart's value webhook.failurePolicy, only they can say whether it is still meant. If it isn't, set it to Fail, the way Autohealer was installed."})
			}
			for _, field := range []string{"clientConfig", "failurePolicy", "timeoutSeconds"} {
				delete(hook, field) // where it is called, and for how long, is for whoever installs it
			}
		}
		o.Object["webhooks"] = webhooks
	})
	return sorted(append(found, open...)), err
}
