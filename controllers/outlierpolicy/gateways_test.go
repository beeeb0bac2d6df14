package outlierpolicy

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

func TestGatewayAncestors(t *testing.T) {
	gateway := types.NamespacedName{Namespace: "edge", Name: "web"}
	mine, others := []*outlier.Policy{{UID: "mine"}}, []*outlier.Policy{{UID: "other"}}
	op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{UID: "mine", Generation: 1}}
	statuses := func(status metav1.ConditionStatus, reason string) map[types.NamespacedName]metav1.Condition {
		return map[types.NamespacedName]metav1.Condition{gateway: {Status: status, Reason: reason, Message: "so it is"}}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "envoypatchpolicies"}, "autohealer.web", errors.New("no"))
	holds := outlier.Patched{Cluster: "a", Policies: mine}
	decided := outlier.Patched{Cluster: "b", Policies: mine, Obstacle: outlier.DecidedByTrafficPolicy, TrafficPolicy: types.NamespacedName{Namespace: "edge", Name: "btp"}}
	disagreed := outlier.Patched{Cluster: "c", Policies: append(mine, others...), Obstacle: outlier.BackendsDiffer}
	for name, test := range map[string]struct {
		clusters             []outlier.Patched
		trouble              error
		verdicts             map[types.NamespacedName]metav1.Condition
		accepted, programmed string // status, reason, and parts of the message
	}{
		"Envoy has it":              {[]outlier.Patched{holds}, nil, statuses("True", "Programmed"), "True Accepted for 1 clusters", "True Programmed so it is"},
		"Envoy Gateway is silent":   {[]outlier.Patched{holds}, nil, nil, "True Accepted", "Unknown Pending said nothing yet"},
		"a cluster is gone":         {[]outlier.Patched{holds}, nil, statuses("False", "ResourceNotFound"), "True Accepted", "False ResourceNotFound so it is"},
		"switched off":              {[]outlier.Patched{holds}, nil, statuses("False", "Disabled"), "True Accepted", "False Disabled extensionApis.enableEnvoyPatchPolicy: true"},
		"nobody let it":             {[]outlier.Patched{holds}, forbidden, nil, "True Accepted", "False MayNotPatch create rolebinding autohealer-envoy-patches -n edge"},
		"what is written is old":    {[]outlier.Patched{holds}, errors.New("not sure"), statuses("True", "Programmed"), "True Accepted", "False Pending not sure"},
		"another policy decides":    {[]outlier.Patched{holds, decided}, nil, statuses("True", "Programmed"), "True Accepted 1 of 2 clusters of the Gateway: BackendTrafficPolicy edge/btp says how b", "True Programmed"},
		"another one decides all":   {[]outlier.Patched{decided}, nil, nil, "False Conflicted 0 of 1 clusters", "Unknown NoClusters"},
		"the backends' ones differ": {[]outlier.Patched{disagreed}, nil, nil, "False Conflicted c is one cluster", "Unknown NoClusters"},
	} {
		t.Run(name, func(t *testing.T) {
			view := &gatewayStatuses{
				clusters:      map[types.NamespacedName][]outlier.Patched{gateway: test.clusters, {Name: "other"}: {{Cluster: "d", Policies: others}}},
				patchStatuses: test.verdicts, writeErrors: map[types.NamespacedName]error{},
			}
			if test.trouble != nil {
				view.writeErrors[gateway] = test.trouble
			}
			all := view.ancestorsOf(op)
			if len(all) != 1 || all[0].AncestorRef.Kind != "Gateway" || all[0].AncestorRef.Name != "web" {
				t.Fatalf("%v", all)
			}
			for condition, want := range map[string]string{"Accepted": test.accepted, "Programmed": test.programmed} {
				c := meta.FindStatusCondition(all[0].Conditions, condition)
				words := strings.SplitN(want, " ", 3)
				if string(c.Status) != words[0] || c.Reason != words[1] || len(words) > 2 && !strings.Contains(c.Message, words[2]) {
					t.Errorf("%s is %s %s %q", condition, c.Status, c.Reason, c.Message)
				}
			}
		})
	}
	var nobody *gatewayStatuses
	if got := nobody.ancestorsOf(op); got != nil {
		t.Error(got)
	}
}
