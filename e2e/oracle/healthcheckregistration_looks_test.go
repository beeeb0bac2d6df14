package oracle

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestWhatCanBeKnownOfACheck(t *testing.T) {
	const (
		builtin   = "evaluate: {builtin: {}}"
		ofStatus  = "evaluate: {status: {}}"
		dialCheck = "{object: {apiVersion: v1, kind: ConfigMap, name: \"'dial'\"}, evaluate: {cel: {failed: has(object.data.broken), progressing: has(object.data.starting), healthy: object.data.phase == 'Up'}}}"
		some      = "object: {apiVersion: v1, kind: ConfigMap, selector: {matchLabels: {of: w}}"
		up        = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: dial, labels: {of: w}}, data: {phase: Up}}"
		down      = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: other, labels: {of: w}}, data: {phase: Down}}"
		elsewhere = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: other, name: dial, labels: {of: w}}, data: {phase: Down}}"
		d         = "{object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, " + builtin + "}"
		m         = "{object: {apiVersion: resources.gardener.cloud/v1alpha1, kind: ManagedResource, name: \"'m'\"}, " + builtin + "}"
	)
	deployment := func(spec, status string) string {
		return "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: default, name: d, generation: 2}, spec: {replicas: 2" + spec + "}, status: {" + status + "}}"
	}
	resource := func(observed, applied, healthy, more string) string {
		return "{apiVersion: resources.gardener.cloud/v1alpha1, kind: ManagedResource, metadata: {namespace: default, name: m, generation: 2}, status: {observedGeneration: " + observed +
			", conditions: [{type: ResourcesApplied, status: '" + applied + "'}, {type: ResourcesHealthy, status: '" + healthy + "'}" + more + "]}}"
	}
	for name, c := range map[string]struct {
		check   string
		objects []string
		want    wellness
	}{
		"an expression that is true":            {dialCheck, []string{up, elsewhere}, well},
		"one that says failed":                  {dialCheck, []string{"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: dial}, data: {phase: Up, broken: x}}"}, unwell},
		"one that says progressing":             {dialCheck, []string{"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: dial}, data: {phase: Up, starting: x}}"}, unwell},
		"none that is true":                     {dialCheck, []string{"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: dial}, data: {phase: Odd}}"}, unwell},
		"an expression that fails":              {dialCheck, []string{"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: dial}, data: {}}"}, unknowable},
		"what isn't there":                      {dialCheck, []string{elsewhere}, unwell},
		"what needn't be there":                 {"{onMissing: Skip, " + dialCheck[1:], nil, well},
		"a check that isn't asked":              {"{when: target.spec.type == 'others', " + dialCheck[1:], nil, well},
		"one that may be":                       {"{when: target.spec.nothing == 'others', " + dialCheck[1:], nil, unknowable},
		"the worst of several":                  {"{" + some + "}, evaluate: {cel: {healthy: object.data.phase == 'Up'}}}", []string{up, down}, unwell},
		"none that is chosen":                   {"{onMissing: Skip, " + some + ", where: object.data.phase == 'Odd'}, " + ofStatus + "}", []string{up, down}, well},
		"what is chosen":                        {"{" + some + ", where: object.data.phase == 'Up'}, evaluate: {cel: {healthy: object.data.phase == 'Up'}}}", []string{up, down}, well},
		"in the namespace of the target alone":  {"{" + some + "}, evaluate: {cel: {healthy: object.data.phase == 'Up'}}}", []string{up, elsewhere}, well},
		"in another namespace":                  {"{" + some + ", namespace: \"'other'\"}, evaluate: {cel: {healthy: object.data.phase == 'Up'}}}", []string{up, elsewhere}, unwell},
		"a kind without namespaces":             {"{object: {apiVersion: v1, kind: Namespace, name: target.metadata.namespace}, " + ofStatus + "}", []string{"{apiVersion: v1, kind: Namespace, metadata: {name: default}}"}, well},
		"kstatus":                               {"{object: {apiVersion: v1, kind: ConfigMap, name: \"'dial'\"}, " + ofStatus + "}", []string{up}, well},
		"what is being deleted":                 {m, []string{strings.Replace(resource("2", "True", "True", ""), "generation", "deletionTimestamp: '2026-11-21T12:00:00Z', generation", 1)}, unwell},
		"what is in a shoot":                    {"{cluster: Shoot, " + dialCheck[1:], []string{up}, unknowable},
		"a shoot's nodes":                       {"{evaluate: {nodes: {min: 1}}}", nil, unknowable},
		"a kind that isn't followed":            {"{object: {apiVersion: v1, kind: Pod, name: \"'p'\"}, " + builtin + "}", nil, unknowable},
		"another built-in check":                {"{object: {apiVersion: v1, kind: ConfigMap, name: \"'dial'\"}, " + builtin + "}", []string{up}, unknowable},
		"a Deployment that serves in a rollout": {d, []string{deployment("", "observedGeneration: 2, availableReplicas: 1, conditions: [{type: Available, status: 'True'}, {type: Progressing, status: 'True'}]")}, well},
		"one whose rollout failed":              {d, []string{deployment("", "observedGeneration: 2, availableReplicas: 2, conditions: [{type: Available, status: 'True'}, {type: Progressing, status: 'False'}]")}, unwell},
		"one that can't make pods":              {d, []string{deployment("", "observedGeneration: 2, availableReplicas: 2, conditions: [{type: Available, status: 'True'}, {type: ReplicaFailure, status: 'True'}]")}, unwell},
		"one that wasn't seen":                  {d, []string{deployment("", "observedGeneration: 1, availableReplicas: 2, conditions: [{type: Available, status: 'True'}]")}, unwell},
		"one that is paused":                    {d, []string{deployment(", paused: true", "observedGeneration: 2, conditions: [{type: Available, status: 'False'}]")}, unknowable},
		"one that says nothing":                 {d, []string{deployment("", "observedGeneration: 2")}, unknowable},
		"a ManagedResource that is well":        {m, []string{resource("2", "True", "True", "")}, well},
		"one that wasn't applied":               {m, []string{resource("2", "False", "True", "")}, unwell},
		"one that is ill":                       {m, []string{resource("2", "True", "False", "")}, unwell},
		"one of before":                         {m, []string{resource("1", "True", "True", "")}, unwell},
		"one that may progress for too long":    {m, []string{resource("2", "True", "True", ", {type: ResourcesProgressing, status: 'True'}")}, unknowable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubjects(dials, Options{}.withDefaults())
			read := func(manifest string) *thing {
				encoded, err := yaml.YAMLToJSON([]byte(manifest))
				if err != nil {
					t.Fatal(err)
				}
				view, err := s.View(encoded)
				if err != nil {
					t.Fatal(err)
				}
				return view.(*thing)
			}
			for _, o := range c.objects {
				is := read(o)
				s.see(noon, is.key(), is)
			}
			policy := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte("{spec: {checks: ["+c.check+"]}}"), &policy.Object); err != nil {
				t.Fatal(err)
			}
			r, err := registeringOf(policy)
			if err != nil {
				t.Fatal(err)
			}
			target := read("{apiVersion: example.org/v1, kind: Gadget, metadata: {namespace: default, name: w}, spec: {type: dials}}")
			if got := s.look(r.Checks[0], target, noon); got != c.want {
				t.Errorf("it is %d, not %d", got, c.want)
			}
		})
	}
}
