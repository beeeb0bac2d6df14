package oracle

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestWhatAnAccountMayDo(t *testing.T) {
	const (
		deletePods = `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["delete"]}]}`
		toAccount  = `{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"ServiceAccount","namespace":"shop","name":"weeder"}]}`
		toCluster  = `{"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"Group","name":"system:serviceaccounts:shop"}]}`
	)
	for _, test := range []struct {
		name                   string
		inRole, role           string // namespace and object; "" is the cluster's
		inBinding, binding     string
		account, verb, subject string
		may                    bool
	}{
		{"by a Role", "shop", deletePods, "shop", toAccount, "weeder", "delete", "pods", true},
		{"another account", "shop", deletePods, "shop", toAccount, "other", "delete", "pods", false},
		{"another verb", "shop", deletePods, "shop", toAccount, "weeder", "create", "pods", false},
		{"another resource", "shop", deletePods, "shop", toAccount, "weeder", "delete", "pods/eviction", false},
		{"a Role of another namespace", "other", deletePods, "shop", toAccount, "weeder", "delete", "pods", false},
		{"a Role bound in another namespace", "other", deletePods, "other", toAccount, "weeder", "delete", "pods", false},
		{"a ClusterRole bound in the namespace, to its accounts", "", deletePods, "shop", toCluster, "weeder", "delete", "pods", true},
		{"a ClusterRole bound in the cluster", "", deletePods, "", toCluster, "weeder", "delete", "pods", true},
		{"a ClusterRole bound in another namespace", "", deletePods, "other", toCluster, "weeder", "delete", "pods", false},
		{"by its user name", "shop", deletePods, "shop", `{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"system:serviceaccount:shop:weeder"}]}`, "weeder", "delete", "pods", true},
		{"everything", "shop", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, "shop", toAccount, "weeder", "create", "pods/eviction", true},
		{"pods of another group", "shop", `{"rules":[{"apiGroups":["metrics.k8s.io"],"resources":["pods"],"verbs":["*"]}]}`, "shop", toAccount, "weeder", "delete", "pods", false},
		{"one pod", "shop", `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["delete"],"resourceNames":["a"]}]}`, "shop", toAccount, "weeder", "delete", "pods", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r rights
			role, err := parseRole(types.NamespacedName{Namespace: test.inRole, Name: "r"}, []byte(test.role))
			if err != nil {
				t.Fatal(err)
			}
			binding, err := parseBinding(types.NamespacedName{Namespace: test.inBinding, Name: "b"}, []byte(test.binding))
			if err != nil {
				t.Fatal(err)
			}
			r.role(noon, role, false)
			r.binding(noon, binding, false)
			account := types.NamespacedName{Namespace: "shop", Name: test.account}
			if may := r.had(account, right{verb: test.verb, resource: test.subject, namespace: "shop"}, noon, 0); may != test.may {
				t.Errorf("it may: %t", may)
			}
		})
	}
}

func TestARightThatIsLostIsBelievedForAWhile(t *testing.T) {
	at := func(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }
	account := types.NamespacedName{Namespace: "shop", Name: "weeder"}
	all, err := parseRole(types.NamespacedName{Namespace: "shop", Name: "r"}, []byte(`{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["delete"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	bound := &binding{key: types.NamespacedName{Namespace: "shop", Name: "b"}, role: all.key}
	if bound.binds(account) {
		t.Error("a binding without subjects binds")
	}
	bound, err = parseBinding(bound.key, []byte(`{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"ServiceAccount","namespace":"shop","name":"weeder"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var r rights
	r.role(at(0), all, false)
	r.binding(at(10), bound, false)
	r.binding(at(20), bound, true)
	r.role(at(100), all, true)
	for second, had := range map[int]bool{5: false, 10: true, 20: true, 79: true, 80: true, 81: false, 110: false} {
		if got := r.had(account, right{verb: "delete", resource: "pods", namespace: "shop"}, at(second), time.Minute); got != had {
			t.Errorf("at second %d: %t", second, got)
		}
	}
}
