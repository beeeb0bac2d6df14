package outliers

import (
	"context"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
)

// apiServer has definitions of routes' kinds and serves the kinds, each when a test sets it, and counts how often a kind is discovered.
type apiServer struct {
	asked   atomic.Int32
	refuses atomic.Bool // to tell of definitions

	mu      sync.Mutex
	serves  map[string]string                     // needs mu; the version, by kind
	watches map[string]*watch.RaceFreeFakeWatcher // needs mu; by a definition's name
}

func newAPIServer() *apiServer {
	return &apiServer{serves: map[string]string{}, watches: map[string]*watch.RaceFreeFakeWatcher{}}
}

func (s *apiServer) definition(name string) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			if s.refuses.Load() {
				return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, name, nil)
			}
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.watches[name] = watch.NewRaceFreeFake()
			return s.watches[name], nil
		},
	}, s), &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
}

// IsWatchListSemanticsUnSupported is true: watches begin with a list.
func (s *apiServer) IsWatchListSemanticsUnSupported() bool { return true }

// RESTMapping gives what is served.
func (s *apiServer) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.serves[kind.Kind]; v != "" && (len(versions) == 0 || slices.Contains(versions, v)) {
		return &meta.RESTMapping{GroupVersionKind: kind.WithVersion(v)}, nil
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

func (s *apiServer) define(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[name].Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "2"}})
}

func (s *apiServer) serve(kind, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serves[kind] = version
}

// startInformers starts informers of an API server, until the test ends.
func startInformers(t *testing.T, s *apiServer) *Informers {
	t.Helper()
	i := &Informers{Cache: &informertest.FakeInformers{Scheme: runtime.NewScheme()}, Mapper: s, Definition: s.definition}
	go func() {
		if err := i.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(time.Minute) // of the bubble's time
	return i
}

func TestAKindWithoutADefinitionIsNotAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := newAPIServer()
		i := startInformers(t, server)
		asked := server.asked.Load()
		time.Sleep(24 * time.Hour)
		g.Expect(server.asked.Load()).To(Equal(asked))
		g.Expect(i.unread()).To(BeEmpty())
	})
}

func TestAKindIsFoundWhenItIsServedAfterItsDefinitionCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := newAPIServer()
		i := startInformers(t, server)
		asked := server.asked.Load()
		server.define("httpproxies.projectcontour.io")
		time.Sleep(time.Second)
		g.Expect(server.asked.Load()).To(BeNumerically(">", asked))
		server.serve("HTTPProxy", "v1")
		server.serve("TCPRoute", "v1") // nobody heard of its definition
		time.Sleep(maxRetryDelay)
		_, found := i.RouteKind("HTTPProxy")
		g.Expect(found).To(BeTrue())
		_, found = i.RouteKind("TCPRoute")
		g.Expect(found).To(BeFalse())

		asked = server.asked.Load()
		time.Sleep(time.Hour)
		g.Expect(server.asked.Load()).To(Equal(asked))
	})
}

func TestAKindIsFollowedIntoAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := newAPIServer()
		server.serve("TCPRoute", "v1alpha2")
		i := startInformers(t, server)
		version := func() string {
			kind, found := i.RouteKind("TCPRoute")
			g.Expect(found).To(BeTrue())
			return kind.Version
		}
		g.Expect(version()).To(Equal("v1alpha2"))

		server.define("tcproutes.gateway.networking.k8s.io")
		time.Sleep(time.Second) // and the API server still says what was before
		server.serve("TCPRoute", "v1")
		time.Sleep(settleDelay)
		g.Expect(version()).To(Equal("v1"))

		server.serve("TCPRoute", "") // its definition is deleted, and comes back
		server.define("tcproutes.gateway.networking.k8s.io")
		time.Sleep(time.Minute)
		g.Expect(version()).To(Equal("v1"), "what is known of its routes stays")
	})
}

func TestKindsAreAskedForWhileTheirDefinitionsCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := newAPIServer()
		server.refuses.Store(true)
		i := startInformers(t, server)
		server.serve("GRPCRoute", "v1")
		time.Sleep(maxRetryDelay)
		_, found := i.RouteKind("GRPCRoute")
		g.Expect(found).To(BeTrue())

		server.refuses.Store(false)
		time.Sleep(5 * time.Minute)
		asked := server.asked.Load()
		time.Sleep(time.Hour)
		g.Expect(server.asked.Load()).To(Equal(asked))
	})
}

// The manager may watch these definitions and no others.
func TestDefinitionsHaveTheNamesThatTheManagerMayWatch(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../../config/rbac/manager_role.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	for _, kind := range optionalKinds {
		g.Expect(string(text)).To(MatchRegexp(`[\[ ]%s[,\]]`, regexp.QuoteMeta(definitionOf(kind))))
	}
}
