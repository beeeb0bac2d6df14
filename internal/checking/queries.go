package checking

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/shoots"
)

// query is what a check looks at in a shoot: the object of that name, or all that a selector takes.
type query struct {
	kind      schema.GroupVersionKind
	namespace string
	name      string
	selector  string
}

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

// everyNode is what checks of nodes look at.
var everyNode = query{kind: nodeKind}

func queryOf(ref registration.Ref) query {
	q := query{kind: ref.Kind, namespace: ref.Namespace, name: ref.Name}
	if ref.Name == "" {
		q.selector = ref.Selector.String()
	}
	return q
}

// shootQueries are what a registration's checks look at in the shoot of a target now: nothing while it is suspended, for then the shoot
// may sleep.
func shootQueries(reg *registration.Registration, target *unstructured.Unstructured) sets.Set[query] {
	wanted := sets.New[query]()
	if suspended, err := reg.Suspended(target); suspended || err != nil || reg.Kubeconfig == nil {
		return wanted
	}
	for _, c := range reg.Checks {
		if asks, err := c.Applies(target); !asks || err != nil {
			continue
		}
		if c.Nodes {
			wanted.Insert(everyNode)
		}
		if ref, err := c.Ref(target); err == nil && c.InShoot() {
			wanted.Insert(queryOf(ref))
		}
	}
	return wanted
}

// mirror needs of.mu.
func (s *Shoots) mirror(of *shoot, q query, timeout time.Duration) *shoots.Mirror {
	source := shoots.Source{
		Client: of.connection.Watching, Timeout: timeout, Clock: s.Clock, Changed: func(client.Object) { s.changed(of, &q) },
		Options: []client.ListOption{client.InNamespace(q.namespace)},
		List:    func() client.ObjectList { return emptyList(q.kind) },
	}
	switch {
	case q == everyNode:
		source.List = func() client.ObjectList { return &corev1.NodeList{} }
		source.Trim = func(o client.Object) { health.TrimNode(o.(*corev1.Node)) }
	case q.name != "":
		source.Options = append(source.Options, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, q.name)})
	default:
		selector, _ := labels.Parse(q.selector) // which a selector wrote
		source.Options = append(source.Options, client.MatchingLabelsSelector{Selector: selector})
	}
	return shoots.Open(source)
}
