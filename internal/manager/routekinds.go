package manager

import (
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// definitions gives what watches a CustomResourceDefinition by its name.
func definitions(config *rest.Config, through *http.Client) (func(name string) toolscache.SharedIndexInformer, error) {
	reader, err := metadata.NewForConfigAndClient(config, through)
	if err != nil {
		return nil, fmt.Errorf("make the client of definitions: %w", err)
	}
	return func(name string) toolscache.SharedIndexInformer {
		return metadatainformer.NewFilteredMetadataInformer(reader, apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
			metav1.NamespaceNone, 0, toolscache.Indexers{}, func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}).Informer()
	}, nil
}

// freshMapper asks the API server each time. The manager's mapper remembers a group's versions, and doesn't learn of one that the group
// gets later: a cluster with HTTPRoutes in v1 gets TCPRoutes in v1alpha2.
type freshMapper struct {
	config  *rest.Config
	through *http.Client
}

// RESTMapping tells how a kind is served now.
func (m freshMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapper, err := apiutil.NewDynamicRESTMapper(m.config, m.through)
	if err != nil {
		return nil, fmt.Errorf("make a mapper: %w", err)
	}
	return mapper.RESTMapping(kind, versions...)
}
