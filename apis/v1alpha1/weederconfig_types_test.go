package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"

	extvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// seedSpec is the configuration of the weeder that WeederConfig grew out of, word for word.
const seedSpec = `
watchDuration: 2m0s
servicesAndDependantSelectors:
  etcd-main-client: # name of the service/endpoint for etcd statefulset that weeder will receive events for.
    podSelectors: # all pods matching the label selector are direct dependencies for etcd service
      - matchExpressions:
          - key: gardener.cloud/role
            operator: In
            values:
              - controlplane
          - key: role
            operator: In
            values:
              - apiserver
  kube-apiserver: # name of the service/endpoint for kube-api-server pods that weeder will receive events for. 
    podSelectors: # all pods matching the label selector are direct dependencies for kube-api-server service
      - matchExpressions:
          - key: gardener.cloud/role
            operator: In
            values:
              - controlplane
          - key: role
            operator: NotIn
            values:
              - main
              - apiserver
`

// oneService is the shortest spec there is, to add to.
const oneService = `
servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}}
`

// The API server estimates the cost of the schema's rules when the CRD is installed, and refuses it when it is too high.
func TestTheAPIServerTakesTheWeederConfigSchema(t *testing.T) {
	if errs := extvalidation.ValidateCustomResourceDefinition(t.Context(), schemaOf(t, "weederconfigs")); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

func TestWeederConfigSchema(t *testing.T) {
	judge := judgeOf(t, "WeederConfig", "weederconfigs")
	for name, test := range map[string]struct {
		spec string
		// wrong is a part of the error, "" when the spec is admitted.
		wrong string
	}{
		"the seed's":                     {spec: seedSpec},
		"one Service":                    {spec: oneService},
		"all fields":                     {spec: oneService + "watchDuration: 30m\nnamespaceSelector: {}\nreadyPolicy: AllReady\nincludeInitContainers: false\ndeletion: Evict\nmaxDeletionsPerWatch: 10000\nmaxRepeatsPerOwner: 0\ncooldown: 10m\nmode: Observe\n"},
		"an account":                     {spec: oneService + "serviceAccountName: weeder\n"},
		"no Services":                    {"servicesAndDependantSelectors: {}", "should have at least 1 properties"},
		"Services missing":               {"watchDuration: 5m", "servicesAndDependantSelectors: Required value"},
		"no podSelectors":                {"servicesAndDependantSelectors: {etcd: {podSelectors: []}}", "should have at least 1 items"},
		"podSelectors missing":           {"servicesAndDependantSelectors: {etcd: {}}", "podSelectors: Required value"},
		"an empty podSelector":           {"servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {a: b}}, {}]}}", "would select every pod"},
		"a podSelector of empty parts":   {"servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {}, matchExpressions: []}]}}", "would select every pod"},
		"a Service in capitals":          {"servicesAndDependantSelectors: {Etcd: {podSelectors: [{matchLabels: {a: b}}]}}", "a Service name has at most 63"},
		"a Service with its namespace":   {"servicesAndDependantSelectors: {ns/etcd: {podSelectors: [{matchLabels: {a: b}}]}}", "a Service name has at most 63"},
		"a Service name of 64":           {"servicesAndDependantSelectors: {" + strings.Repeat("e", 64) + ": {podSelectors: [{matchLabels: {a: b}}]}}", "a Service name has at most 63"},
		"In without values":              {"servicesAndDependantSelectors: {etcd: {podSelectors: [{matchExpressions: [{key: a, operator: In}]}]}}", "In and NotIn need values"},
		"Exists with values":             {"servicesAndDependantSelectors: {etcd: {podSelectors: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}}", "Exists and DoesNotExist take none"},
		"another operator":               {"servicesAndDependantSelectors: {etcd: {podSelectors: [{matchExpressions: [{key: a, operator: Gt, values: ['1']}]}]}}", "Unsupported value"},
		"watchDuration 0s":               {oneService + "watchDuration: 0s", "more than 0s and at most 30m"},
		"watchDuration of 31m":           {oneService + "watchDuration: 31m", "more than 0s and at most 30m"},
		"watchDuration without a unit":   {oneService + "watchDuration: '300'", "write a duration such as"},
		"a negative watchDuration":       {oneService + "watchDuration: -5m", "write a duration such as"},
		"cooldown below 1s":              {oneService + "cooldown: 999ms", "at least 1s and at most 10m"},
		"cooldown above 10m":             {oneService + "cooldown: 601s", "at least 1s and at most 10m"},
		"no deletions":                   {oneService + "maxDeletionsPerWatch: 0", "greater than or equal to 1"},
		"too many deletions":             {oneService + "maxDeletionsPerWatch: 10001", "less than or equal to 10000"},
		"too many repeats":               {oneService + "maxRepeatsPerOwner: 21", "less than or equal to 20"},
		"negative repeats":               {oneService + "maxRepeatsPerOwner: -1", "greater than or equal to 0"},
		"another readyPolicy":            {oneService + "readyPolicy: Always", "Unsupported value"},
		"another deletion":               {oneService + "deletion: Kill", "Unsupported value"},
		"another mode":                   {oneService + "mode: DryRun", "Unsupported value"},
		"an account and many namespaces": {oneService + "serviceAccountName: weeder\nnamespaceSelector: {matchLabels: {shoot: a}}", "remove one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			judge(t, test.spec, test.wrong)
		})
	}
}

// What a GitOps tool reads back is what it wrote: nothing is defaulted, dropped or rewritten.
func TestTheSeedIsKeptAsItIsWritten(t *testing.T) {
	var spec v1alpha1.WeederConfigSpec
	if err := yaml.UnmarshalStrict([]byte(seedSpec), &spec); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	want, err := yaml.YAMLToJSON([]byte(seedSpec))
	if err != nil {
		t.Fatal(err)
	}
	if canonical(t, got) != canonical(t, want) {
		t.Errorf("written %s\nread %s", want, got)
	}
}

func TestLabelSelectorAsSelector(t *testing.T) {
	for name, test := range map[string]struct {
		selector v1alpha1.LabelSelector
		want     string
		wrong    bool
	}{
		"labels and expressions": {selector: v1alpha1.LabelSelector{
			MatchLabels:      map[string]string{"a": "b"},
			MatchExpressions: []v1alpha1.LabelSelectorRequirement{{Key: "role", Operator: "NotIn", Values: []string{"main", "apiserver"}}, {Key: "x", Operator: "Exists"}},
		}, want: "a=b,role notin (apiserver,main),x"},
		"an impossible value": {selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}, wrong: true},
		"an impossible key":   {selector: v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelSelectorRequirement{{Key: "a b", Operator: "Exists"}}}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.selector.AsSelector()
			if (err != nil) != test.wrong || err == nil && got.String() != test.want {
				t.Errorf("got %v, %v; want %q", got, err, test.want)
			}
		})
	}
}
