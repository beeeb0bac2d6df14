package outliers

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// mapper knows HTTPRoutes, can't say anything about HTTPProxies, and has no other kinds.
type mapper struct{ meta.RESTMapper }

func (mapper) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	switch kind.Kind {
	case "HTTPRoute":
		return &meta.RESTMapping{GroupVersionKind: kind.WithVersion("v1")}, nil
	case "HTTPProxy":
		return nil, errors.New("the server is currently unable to handle the request")
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

func TestRoutesThatCannotBeReadKeepNothingElseWaiting(t *testing.T) {
	g := NewWithT(t)
	scheme := clientgoscheme.Scheme
	g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	route := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	frozen := controllertest.NewFakeInformer()
	objects := &informertest.FakeInformers{Scheme: scheme}
	i := &Informers{Cache: objects, Mapper: mapper{}}
	g.Expect(i.WatchCore(t.Context())).To(Succeed())
	objects.InformersByGVK[route] = frozen

	var failed []error
	for _, kind := range outlier.RouteKinds {
		_, err := i.refreshKind(t.Context(), kind)
		failed = append(failed, err)
	}
	g.Expect(errors.Join(failed...)).To(MatchError(ContainSubstring("unable to handle the request")))
	g.Expect(i.CoreSynced()).To(BeTrue())
	g.Expect(i.Synced()).To(BeFalse())
	w, err := i.Objects(t.Context(), "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.Unread).To(Equal(map[string]bool{"HTTPRoute": true, "HTTPProxy": true}))

	frozen.Synced()
	w, err = i.Objects(t.Context(), "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.Unread).To(Equal(map[string]bool{"HTTPProxy": true}))
	kind, ok := i.RouteKind("HTTPRoute")
	g.Expect(ok).To(BeTrue())
	g.Expect(kind).To(Equal(route))
	_, ok = i.RouteKind("TCPRoute")
	g.Expect(ok).To(BeFalse())
}
