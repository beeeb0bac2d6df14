package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// specs are the policies' specs as their authors wrote them. A Go type leaves out `paused: false` and an empty selector, and
// whether an update changes anything is asked of what is stored.
type specs map[policyKey]any

type policyKey struct{ kind, namespace, name string }

func keyOf(kind string, object map[string]any) policyKey {
	u := unstructured.Unstructured{Object: object}
	return policyKey{kind: kind, namespace: u.GetNamespace(), name: u.GetName()}
}

// listedAs are the fields of a facts file that hold policies, with their kinds.
var listedAs = map[string]string{
	"conditionSets": "ConditionSet", "guardrails": "Guardrail", "guardrailExceptions": "GuardrailException",
	"weederConfigs": "WeederConfig", "probeConfigs": "ProbeConfig", "outlierPolicies": "OutlierPolicy", "healthCheckRegistrations": "HealthCheckRegistration",
}

// eachPolicy goes through the policies of a facts file.
func eachPolicy(file map[string]any, do func(kind string, policy map[string]any)) {
	for field, kind := range listedAs {
		policies, _ := file[field].([]any)
		for _, item := range policies {
			if policy, isObject := item.(map[string]any); isObject {
				do(kind, policy)
			}
		}
	}
}

// specsOf reads the specs in a facts file.
func specsOf(text []byte) (specs, error) {
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	var file map[string]any
	if err := utiljson.Unmarshal(asJSON, &file); err != nil {
		return nil, err
	}
	written := specs{}
	eachPolicy(file, func(kind string, policy map[string]any) { written[keyOf(kind, policy)] = policy["spec"] })
	return written, nil
}

// asWritten is a snapshot as its file has it.
func (s *Snapshot) asWritten() (map[string]any, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var file map[string]any
	if err := utiljson.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	eachPolicy(file, func(kind string, policy map[string]any) {
		if spec, known := s.written[keyOf(kind, policy)]; known {
			policy["spec"] = spec
		}
	})
	return file, nil
}

// object is a stored policy as the API server has it.
func (s *Snapshot) object(kind string, stored client.Object) (map[string]any, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", kind, stored.GetName(), err)
	}
	object["apiVersion"], object["kind"] = v1alpha1.GroupVersion.String(), kind
	if spec, known := s.written[keyOf(kind, object)]; known {
		object["spec"] = runtime.DeepCopyJSONValue(spec)
	}
	return object, nil
}

// rewrite forgets what was written of a policy that another one replaces.
func (s *Snapshot) rewrite(kind string, by client.Object) {
	delete(s.written, policyKey{kind: kind, namespace: by.GetNamespace(), name: by.GetName()})
}

// listPolicies lists a kind of ours, and keeps what their authors wrote.
func listPolicies[T any](ctx context.Context, l Live, c client.Client, s *Snapshot, plural, kind string, add func(*T)) error {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	var failed []error
	err := list(ctx, l, c, plural, all, "", func(u *unstructured.Unstructured) {
		s.written[keyOf(kind, u.Object)] = u.Object["spec"]
		content := maps.Clone(u.Object)
		delete(content, "apiVersion")
		delete(content, "kind")
		policy := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, policy); err != nil {
			failed = append(failed, fmt.Errorf("read %s %s: %w", kind, u.GetName(), err))
			return
		}
		add(policy)
	})
	return errors.Join(append(failed, err)...)
}
