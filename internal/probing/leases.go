package probing

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

const (
	// chunkSize is how many objects are requested in a chunk at first. Nodes with much metadata make it smaller.
	chunkSize = 100
	// maxChunk bounds what is read of one chunk. A node's metadata has about 5 KiB, most of it managedFields.
	maxChunk = 1 << 20
	// maxNodes, maxName and maxNames bound the memory that a server's list can take: the number of objects, the length of a name, which is
	// Kubernetes' own limit, and the bytes of all names. Kubernetes supports 5,000 nodes.
	maxNodes = 20_000
	maxName  = 253
	maxNames = 4 << 20

	nodesPath = "/api/v1/nodes"

	acceptObjects  = runtime.ContentTypeProtobuf
	acceptMetadata = runtime.ContentTypeProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// chunkDecoder decodes Kubernetes' own kinds, Leases and metadata, and protobuf alone, which every API server speaks for these.
var chunkDecoder = func() *protobuf.Serializer {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	return protobuf.NewSerializer(scheme, scheme)
}()

// nodeLeases lists Nodes and their Leases, in chunks, and how much the API server's clock is ahead of ours. An error doesn't say that the
// server is sick: most likely the credentials may not list. Within is how long it may take.
func (c *client) nodeLeases(ctx context.Context, clock clock.PassiveClock, within time.Duration, terms probe.LeaseSettings) (renewed []probe.NodeLease, ahead time.Duration, err error) {
	l, began := &chunkedList{client: c, clock: clock}, clock.Now()
	present, err := l.nodes(ctx)
	if err != nil {
		return nil, 0, err
	}
	if renewed, err = l.leases(ctx, present); err != nil {
		return nil, 0, err
	}
	ahead = l.ahead
	if terms.AppearExpired(renewed, clock.Now().Add(ahead)) {
		l.markFaulty(ctx, (within-clock.Since(began))/2, renewed)
	}
	return renewed, ahead, nil
}

// chunkedList reads lists in chunks.
type chunkedList struct {
	client *client
	clock  clock.PassiveClock
	body   bytes.Buffer // of the latest chunk
	names  int          // bytes of those that are kept
	// ahead of ours is the server's clock in the latest answer.
	ahead time.Duration
}

// nodes lists the names of those that aren't being deleted.
func (l *chunkedList) nodes(ctx context.Context) (map[string]bool, error) {
	present, chunk := map[string]bool{}, &metav1.PartialObjectMetadataList{}
	err := l.each(ctx, nodesPath, acceptMetadata, chunk, func() error {
		for _, node := range chunk.Items {
			if node.DeletionTimestamp != nil {
				continue
			}
			if err := l.admitName(node.Name, len(present)); err != nil {
				return err
			}
			present[node.Name] = true
		}
		return nil
	})
	return present, err
}

// leases lists those of present nodes. It isn't nil when there are none.
func (l *chunkedList) leases(ctx context.Context, present map[string]bool) ([]probe.NodeLease, error) {
	renewed, chunk := make([]probe.NodeLease, 0, len(present)), &coordinationv1.LeaseList{}
	path := "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases"
	err := l.each(ctx, path, acceptObjects, chunk, func() error {
		for i := range chunk.Items {
			lease := &chunk.Items[i]
			if !present[lease.Name] {
				continue
			}
			if err := l.admitName(lease.Name, len(renewed)); err != nil {
				return err
			}
			node := probe.NodeLease{Node: lease.Name}
			if lease.Spec.RenewTime != nil {
				node.Renewed = lease.Spec.RenewTime.Time
			}
			renewed = append(renewed, node)
		}
		return nil
	})
	return renewed, err
}

// markFaulty sets which nodes are faulty themselves. Whole nodes are three times as large as their metadata, so they are read only while
// leases look expired, and not for all of the time that remains: a slow read of nodes must not count as a slow list of leases. A node that
// couldn't be read counts as healthy: a fault must be reported.
func (l *chunkedList) markFaulty(ctx context.Context, within time.Duration, renewed []probe.NodeLease) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	index := make(map[string]int, len(renewed))
	for i := range renewed {
		index[renewed[i].Node] = i
	}
	chunk := &corev1.NodeList{}
	err := l.each(ctx, nodesPath, acceptObjects, chunk, func() error {
		for i := range chunk.Items {
			if lease, ok := index[chunk.Items[i].Name]; ok {
				renewed[lease].Faulty = probe.Faulty(&chunk.Items[i])
			}
		}
		return nil
	})
	if err != nil {
		l.client.close() // it may have broken, or still receive
	}
}

// admitName counts one more name, and fails beyond what any cluster has.
func (l *chunkedList) admitName(name string, count int) error {
	l.names += len(name)
	if len(name) > maxName || l.names > maxNames || count >= maxNodes {
		return errTooMuch
	}
	return nil
}

// Why a list can't be used. No text quotes the answer.
var (
	errUnexpected = unusableList("the answer to a list of nodes or leases isn't an API server's")
	errUndated    = unusableList("the answer to a list of nodes or leases has no Date header, by which leases are judged")
	errTooMuch    = unusableList("the list of nodes or leases is longer than any cluster's")
	errLargeChunk = unusableList("one node or lease alone has more than 1 MiB")
)

func unusableList(detail string) outcomeError {
	return outcomeError{probe.Outcome{Class: probe.UnexpectedAnswer, Detail: detail}}
}

// list is a list of objects that is read in chunks.
type list interface {
	runtime.Object
	metav1.ListInterface
}

// each reads all chunks of a list, one after the other. Take takes in the latest.
func (l *chunkedList) each(ctx context.Context, path, accept string, chunk list, take func() error) error {
	query, size := url.Values{}, chunkSize
	// A server that always has one more chunk would keep us until the timeout, at most for so many objects requested.
	for requested := 0; requested < 2*maxNodes; requested += size {
		query.Set("limit", strconv.Itoa(size))
		err := l.read(ctx, path, query, accept)
		if errors.Is(err, errLargeChunk) && size > 1 {
			size /= 2
			continue
		}
		if err != nil {
			return err
		}
		if _, _, err := chunkDecoder.Decode(l.body.Bytes(), nil, chunk); err != nil {
			return errUnexpected // the error would quote the answer
		}
		if err := take(); err != nil || chunk.GetContinue() == "" {
			return err
		}
		query.Set("continue", chunk.GetContinue())
	}
	return errTooMuch
}

func (l *chunkedList) read(ctx context.Context, path string, query url.Values, accept string) error {
	if err := l.client.connect(ctx); err != nil {
		return err
	}
	request := l.client.request.Clone(ctx)
	request.URL = l.client.access.URL(path)
	request.URL.RawQuery = query.Encode()
	request.Header.Set("Accept", accept)
	response, err := l.client.conn.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return outcomeError{outcomeOfStatus(response, l.clock.Now())}
	}
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return errUndated
	}
	l.ahead = date.Sub(l.clock.Now())
	l.body.Reset()
	n, err := l.body.ReadFrom(io.LimitReader(response.Body, maxChunk+1))
	if err == nil && n > maxChunk {
		l.client.close() // the rest of the answer is still coming
		return errLargeChunk
	}
	return err
}

const (
	// maxListings is how many clusters' leases are listed at once: a chunk takes memory, and its size is the server's.
	maxListings = 16
	// maxSlow is how many more are listed at once of servers whose last list was too slow: they must not occupy all slots.
	maxSlow = 4
	// maxPerNamespace is how many a namespace has at once, however many configs a tenant makes.
	maxPerNamespace = 2
)

// listSlots limit how many listings run at once. They are safe for concurrent use.
type listSlots struct {
	prompt, slow chan struct{}

	mu sync.Mutex
	// byNamespace has how many each namespace has, or waits for; needs mu.
	byNamespace map[string]int
}

func newSlots() *listSlots {
	return &listSlots{prompt: make(chan struct{}, maxListings), slow: make(chan struct{}, maxSlow), byNamespace: map[string]int{}}
}

// acquire waits for a slot until ctx ends; ok is false when there was none, else free must be called.
func (s *listSlots) acquire(ctx context.Context, namespace string, slow bool) (free func(), ok bool) {
	if !s.reserve(namespace) {
		return nil, false
	}
	slots := s.prompt
	if slow {
		slots = s.slow
	}
	select {
	case slots <- struct{}{}:
		return func() {
			<-slots
			s.release(namespace)
		}, true
	case <-ctx.Done():
		s.release(namespace)
		return nil, false
	}
}

func (s *listSlots) reserve(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNamespace[namespace] >= maxPerNamespace {
		return false
	}
	s.byNamespace[namespace]++
	return true
}

func (s *listSlots) release(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNamespace[namespace]--; s.byNamespace[namespace] == 0 {
		delete(s.byNamespace, namespace)
	}
}
