package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
	"github.com/resourcestack/autohealer/internal/kube/survey"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// defaultChunkSize keeps an answer of nodes at a few megabytes.
const defaultChunkSize = 500

// Live reads a cluster once.
type Live struct {
	Config *rest.Config
	Clock  clock.PassiveClock
	// ChunkSize is how many objects are asked for at a time. Default: 500.
	ChunkSize int64
	// Progress is called with how many objects of a kind were read so far.
	Progress func(kind string, n int)
	// Policy judges the kubeconfigs that ProbeConfigs name. Default: as the manager does in a cluster.
	Policy kubeconfig.Policy
	// Warn is called with what couldn't be read and what follows.
	Warn func(text string)
}

// live is the API server that a snapshot was read from, for what policies name.
type live struct {
	client client.Client
	survey *survey.Live
	policy kubeconfig.Policy
	// schemas tell the types of what HealthCheckRegistrations read.
	schemas *dependents.Schemas
}

// Read reads everything that planners look at. A cluster without our kinds has none of their objects.
func (l Live) Read(ctx context.Context) (*Snapshot, error) {
	cfg := rest.CopyConfig(l.Config)
	server := &kube.ServerClock{Clock: l.Clock}
	server.Watch(cfg)
	c, err := client.New(cfg, client.Options{Scheme: known})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	address, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	s := &Snapshot{Objects: newObjects(), From: address.Redacted()} // who reads the file is to learn no password
	s.live = &live{
		client: c, policy: l.Policy, survey: &survey.Live{Reader: c, Scales: c.SubResource("scale"), Kinds: kinds},
		schemas: dependents.NewSchemas(openapi.NewClientWithContext(kinds.RESTClient())),
	}
	if s.OwnNamespace, err = FindOwn(ctx, c); err != nil {
		return nil, err
	}
	if err := l.readAll(ctx, c, s); err != nil {
		return nil, err
	}
	// Whole seconds, as the file has them: the plan now and the plan from the file must be one.
	s.TakenAt = metav1.NewTime(l.Clock.Now().UTC().Truncate(time.Second))
	s.ServerTime = metav1.NewTime(server.Now().UTC().Truncate(time.Second))
	return s, nil
}

// readAll lists what planners read. What may not be listed isn't known, and each consequence is reported once.
func (l Live) readAll(ctx context.Context, c client.Client, s *Snapshot) error {
	read, reported := recordingClient{Objects: s.Objects, server: c, trimmer: newTrimmer(nil)}, sets.New[string]()
	for i := range resources {
		r := &resources[i]
		err := l.list(ctx, read, r)
		switch without := r.consequence(); {
		case apierrors.IsForbidden(err) && !r.must && reported.Has(without):
		case apierrors.IsForbidden(err) && !r.must:
			reported.Insert(without)
			l.Warn(without + ": " + err.Error())
		case err != nil:
			return err
		}
		if i == 0 { // they say what more is kept
			read.trimmer = newTrimmer(storedFields(s))
		}
	}
	return nil
}

// list reads all objects of a kind, some at a time. When the list expires meanwhile it begins anew, with all at once.
func (l Live) list(ctx context.Context, read recordingClient, r *resource) error {
	options := &client.ListOptions{Namespace: r.namespace, Limit: cmp.Or(l.ChunkSize, defaultChunkSize)}
	for n := 0; ; {
		chunk := &unstructured.UnstructuredList{}
		err := read.listOf(chunk, r.GroupVersionKind)
		if err == nil {
			err = read.List(ctx, chunk, options)
		}
		n += len(chunk.Items)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			read.answer(r.lists()) // Autohealer isn't installed, or an older one
			return nil
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			read.forget(r.GroupKind())
			n, options.Limit, options.Continue = 0, 0, ""
			continue
		case err != nil:
			return fmt.Errorf("list %s: %w", plural(r), err)
		}
		l.Progress(plural(r), n)
		if options.Continue = chunk.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func plural(r *resource) string {
	resource, _ := meta.UnsafeGuessKindToResource(r.GroupVersionKind)
	return resource.Resource
}

// recordingClient asks an API server, and keeps what it answers.
type recordingClient struct {
	*Objects
	server client.Client
	// trimmer is nil where it isn't known yet what of the objects is read.
	*trimmer
}

// listOf makes a list one of a kind. One without a version is of that which the cluster serves.
func (t recordingClient) listOf(list *unstructured.UnstructuredList, kind schema.GroupVersionKind) error {
	if kind.Version == "" {
		mapping, err := t.server.RESTMapper().RESTMapping(kind.GroupKind())
		if err != nil {
			return err
		}
		kind = mapping.GroupVersionKind
	}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return nil
}

// Get reads an object. A Secret isn't kept.
func (t recordingClient) Get(ctx context.Context, key client.ObjectKey, as client.Object, options ...client.GetOption) error {
	kind, err := t.server.GroupVersionKindFor(as)
	if err != nil {
		return err
	}
	if kind == secretKind {
		return t.server.Get(ctx, key, as, options...)
	}
	whole := &unstructured.Unstructured{}
	whole.SetGroupVersionKind(kind)
	err = t.server.Get(ctx, key, whole, options...)
	switch {
	case apierrors.IsForbidden(err):
		t.answer(query(kind.GroupKind(), key, "") + forbidden)
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		t.answer(query(kind.GroupKind(), key, ""))
	case err == nil:
		if err := t.store(whole); err != nil {
			return err
		}
		return into(whole, as)
	}
	return err
}

// List reads objects of a kind, perhaps not all at once. Only with the last it is known that these are all.
func (t recordingClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := t.server.List(ctx, list, options...)
	of := client.ListOptions{LabelSelector: labels.Everything()}
	of.ApplyOptions(options)
	chunk, isRaw := list.(*unstructured.UnstructuredList)
	kind := list.GetObjectKind().GroupVersionKind().GroupKind()
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	answers := query(kind, types.NamespacedName{Namespace: of.Namespace}, of.LabelSelector.String())
	switch {
	case apierrors.IsForbidden(err):
		t.answer(answers + forbidden)
		return err
	case err != nil || !isRaw || kind == secretKind.GroupKind():
		return err
	case chunk.GetContinue() != "":
		answers += notAll
	}
	for i := range chunk.Items {
		one := &chunk.Items[i]
		if t.trimmer != nil { // at once: of ten thousand whole pods the program would be full
			one = t.trim(one)
		}
		if err := t.store(one); err != nil {
			return err
		}
	}
	t.answer(answers)
	return nil
}

func (s *Snapshot) reader() client.Reader {
	if s.live == nil {
		return s.Objects
	}
	return recordingClient{Objects: s.Objects, server: s.live.client}
}

func (f *Facts) checked() checked {
	read := f.snapshot
	objects := &dependents.Live{Reader: read.reader(), Mapper: read.Objects}
	if read.live != nil {
		objects.Mapper, objects.Schemas = read.live.client.RESTMapper(), read.live.schemas
	}
	return checked{objects, read}
}
