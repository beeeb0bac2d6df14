package shoots

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper knows where the API server of one shoot serves those kinds that were asked for. All that a discovery tells, of which
// checks need a few lines, would be hundreds of KiB for each shoot.
type mapper struct {
	// RESTMapper answers all other questions. Only then does it ask for everything.
	meta.RESTMapper
	discovery discovery.DiscoveryInterface

	mu    sync.Mutex
	known map[schema.GroupVersionKind]*meta.RESTMapping // needs mu
}

func newMapper(config *rest.Config, through *http.Client) (*mapper, error) {
	rest, err := apiutil.NewDynamicRESTMapper(config, through)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, through)
	if err != nil {
		return nil, err
	}
	return &mapper{RESTMapper: rest, discovery: d, known: map[schema.GroupVersionKind]*meta.RESTMapping{}}, nil
}

// RESTMapping asks for the group and version of a kind, once for each. That it isn't served may change, and is asked again.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	of := kind.WithVersion(versions[0])
	m.mu.Lock()
	known := m.known[of]
	m.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := m.find(of)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[of] = found
	return found, nil
}

func (m *mapper) find(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	all, err := m.discovery.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("ask where %s is served: %w", kind.Kind, err)
	}
	if err == nil {
		for i := range all.APIResources {
			r := &all.APIResources[i]
			if r.Kind != kind.Kind || strings.Contains(r.Name, "/") {
				continue
			}
			mapping := &meta.RESTMapping{Resource: kind.GroupVersion().WithResource(strings.Clone(r.Name)), GroupVersionKind: kind, Scope: meta.RESTScopeRoot}
			if r.Namespaced {
				mapping.Scope = meta.RESTScopeNamespace
			}
			return mapping, nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
}
