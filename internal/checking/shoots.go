package checking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/shoots"
)

// Shoots watches what checks look at in shoots, each with the client of its own kubeconfig, as long as a target's checks look
// there. It is safe for concurrent use.
type Shoots struct {
	// Seed has the Secrets with kubeconfigs, of which it watches the metadata by name.
	Seed   client.WithWatch
	Scheme *runtime.Scheme
	// Dial says which addresses a shoot's kubeconfig may have.
	Dial kubeconfig.Policy
	// Changed is called for each target whose checks look at what changed.
	Changed func(Target)
	Clock   clock.PassiveClock

	mu     sync.Mutex
	groups map[connKey]*shootGroup // needs mu
}

// connKey is how shoots are reached: by which Secrets, and how long an answer may take. Registrations that give other times share no
// connection, so that none waits longer than it says, or gives up sooner because of another.
type connKey struct {
	v1alpha1.SecretKey
	timeout time.Duration
}

// shootGroup are all Secrets of one name, and the connections made with them.
type shootGroup struct {
	secrets *shoots.Mirror
	clients *shoots.Clients
	shoots  map[string]*shoot // by namespace; needs the mu of Shoots
}

// shootKey is where the kubeconfig of a shoot lies.
type shootKey struct {
	namespace string
	connKey
}

// shootKeyOf is where a registration's checks find the shoot of a target. Checks of shoots aren't read without a kubeconfig.
func shootKeyOf(reg *registration.Registration, target *unstructured.Unstructured) shootKey {
	return shootKey{target.GetNamespace(), connKey{*reg.Kubeconfig, reg.CheckTimeout}}
}

// shoot is one cluster that checks look at.
type shoot struct {
	users map[Target]sets.Set[query] // needs the mu of Shoots

	// connecting is held while the kubeconfig is read, so that an older one never takes the place of a newer.
	connecting sync.Mutex

	mu         sync.Mutex
	connection *shoots.Connection // needs mu, as all below; nil before the first
	mirrors    map[query]*shoots.Mirror
}

// Follow has the target judged again when what the checks of those interested look at in its shoot changes. What else it followed
// before ends.
func (s *Shoots) Follow(target Target, by []Interest) {
	wanted := map[connKey]sets.Set[query]{}
	for _, i := range by {
		if seen := shootQueries(i.Registration, i.Object); len(seen) > 0 {
			k := shootKeyOf(i.Registration, i.Object).connKey
			wanted[k] = seen.Union(wanted[k])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.groups {
		if _, stays := wanted[k]; !stays {
			s.removeUser(target, k)
		}
	}
	for k, queries := range wanted {
		of := s.addUser(shootKey{target.Key.Namespace, k})
		of.users[target] = queries
		of.pruneMirrors(of.used())
	}
}

// addUser needs s.mu.
func (s *Shoots) addUser(h shootKey) *shoot {
	k := s.groups[h.connKey]
	if k == nil {
		k = s.openGroup(h.connKey)
	}
	of := k.shoots[h.namespace]
	if of == nil {
		of = &shoot{users: map[Target]sets.Set[query]{}, mirrors: map[query]*shoots.Mirror{}}
		k.shoots[h.namespace] = of
	}
	return of
}

// removeUser needs s.mu.
func (s *Shoots) removeUser(target Target, by connKey) {
	k, namespace := s.groups[by], target.Key.Namespace
	of := k.shoots[namespace]
	if of == nil || of.users[target] == nil {
		return
	}
	delete(of.users, target)
	of.pruneMirrors(of.used())
	if len(of.users) > 0 {
		return
	}
	k.clients.Forget(namespace)
	if delete(k.shoots, namespace); len(k.shoots) == 0 {
		k.secrets.Close()
		delete(s.groups, by)
	}
}

// openGroup needs s.mu.
func (s *Shoots) openGroup(by connKey) *shootGroup {
	k := &shootGroup{shoots: map[string]*shoot{}, clients: &shoots.Clients{
		Secrets: s.Seed, Secret: by.SecretName, Key: by.Key, Scheme: s.Scheme, Dial: s.Dial, Timeout: by.timeout,
	}}
	k.secrets = shoots.Open(shoots.Source{
		Client: s.Seed, Timeout: by.timeout, Clock: s.Clock,
		List: func() client.ObjectList {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
			return list
		},
		Options: []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, by.SecretName)}},
		Trim: func(o client.Object) {
			o.SetManagedFields(nil)
			o.SetLabels(nil)
			o.SetAnnotations(nil)
		},
		Changed: func(o client.Object) { s.kubeconfigChanged(by, o) },
	})
	if s.groups == nil {
		s.groups = map[connKey]*shootGroup{}
	}
	s.groups[by] = k
	return k
}

func (s *Shoots) kubeconfigChanged(by connKey, secret client.Object) {
	s.mu.Lock()
	var concerned []*shoot
	if k := s.groups[by]; k != nil {
		for namespace, of := range k.shoots {
			if secret == nil || secret.GetNamespace() == namespace {
				concerned = append(concerned, of)
			}
		}
	}
	s.mu.Unlock()
	for _, of := range concerned {
		s.changed(of, nil)
	}
}

// changed has those targets evaluated whose checks look at a query, or at anything.
func (s *Shoots) changed(of *shoot, at *query) {
	s.mu.Lock()
	var concerned []Target
	for target, queries := range of.users {
		if at == nil || queries.Has(*at) {
			concerned = append(concerned, target)
		}
	}
	s.mu.Unlock()
	for _, target := range concerned {
		s.Changed(target)
	}
}

// used needs the mu of Shoots.
func (of *shoot) used() sets.Set[query] {
	all := sets.New[query]()
	for _, queries := range of.users {
		all = all.Union(queries)
	}
	return all
}

func (of *shoot) pruneMirrors(used sets.Set[query]) {
	of.mu.Lock()
	defer of.mu.Unlock()
	for q, m := range of.mirrors {
		if !used.Has(q) {
			m.Close()
			delete(of.mirrors, q)
		}
	}
}

// objects are what a query finds in the shoot of a namespace, as it was seen last. The error says why that can't be trusted.
func (s *Shoots) objects(ctx context.Context, h shootKey, q query) ([]client.Object, error) {
	s.mu.Lock()
	var of *shoot
	k := s.groups[h.connKey]
	if k != nil {
		of = k.shoots[h.namespace]
	}
	s.mu.Unlock()
	if of == nil {
		return nil, errors.New("the shoot isn't watched")
	}
	secret, err := k.secrets.Object(types.NamespacedName{Namespace: h.namespace, Name: h.SecretName})
	switch {
	case errors.Is(err, ErrNotSynced):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("watch the shoots' kubeconfigs: %w", err)
	case secret == nil:
		return nil, fmt.Errorf("read the shoot's kubeconfig: there is no Secret %s/%s", h.namespace, h.SecretName)
	}
	if err := of.connect(ctx, k.clients, h.namespace, secret); err != nil {
		return nil, err
	}
	m := s.mirrorOf(of, q, h.timeout) //nolint:contextcheck // a mirror outlives who asks for it first
	if m == nil {
		return nil, ErrNotSynced
	}
	return m.Objects()
}

// connect has the shoot reached by the kubeconfig that is stored. What was seen by another one isn't trusted any more.
func (of *shoot) connect(ctx context.Context, clients *shoots.Clients, namespace string, secret client.Object) error {
	of.connecting.Lock()
	defer of.connecting.Unlock()
	of.mu.Lock()
	is := of.connection
	of.mu.Unlock()
	if is != nil && is.UID == secret.GetUID() && is.Version == secret.GetResourceVersion() {
		return nil
	}
	fresh, err := clients.Connection(ctx, namespace)
	if err == nil && fresh == is {
		return nil
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	for q, m := range of.mirrors {
		m.Close()
		delete(of.mirrors, q)
	}
	of.connection = fresh
	return err
}

// mirrorOf is nil where the kubeconfig became unusable meanwhile, of which its Secret tells.
func (s *Shoots) mirrorOf(of *shoot, q query, timeout time.Duration) *shoots.Mirror {
	of.mu.Lock()
	defer of.mu.Unlock()
	m := of.mirrors[q]
	if m == nil && of.connection != nil {
		m = s.mirror(of, q, timeout)
		of.mirrors[q] = m
	}
	return m
}

// live gives the client of the shoot by the kubeconfig that is stored now.
func (s *Shoots) live(ctx context.Context, h shootKey) (client.Client, error) {
	s.mu.Lock()
	k := s.groups[h.connKey]
	s.mu.Unlock()
	if k == nil {
		return nil, errors.New("the shoot isn't watched")
	}
	return k.clients.Of(ctx, h.namespace)
}
