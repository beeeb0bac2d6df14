// Package shoots reaches the clusters whose kubeconfigs lie in Secrets, and reads what may be believed.
package shoots

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// Believable is a client whose NotFound may be believed: what a cache lacks is asked for live, and a kind that isn't served
// is another error.
type Believable struct {
	client.Client
	// Live reader; nil when the client itself reads live.
	Live client.Reader
}

// Get reads with the client, and live what that doesn't find.
func (b Believable) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := b.Client.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) && b.Live != nil {
		err = b.Live.Get(ctx, key, into, options...)
	}
	// The API server answers so where nothing serves the path, for example after a CustomResourceDefinition was deleted.
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("the kind isn't served: %v", err) //nolint:errorlint // wrapped, it would still be taken for NotFound
	}
	return err
}

// Clients keeps a client for each shoot, as long as its kubeconfig is the same. It is safe for concurrent use.
type Clients struct {
	// Secrets reads those with kubeconfigs: in each shoot's namespace that of the name Secret, under Key.
	Secrets     client.Reader
	Secret, Key string
	Scheme      *runtime.Scheme
	// Dial says which addresses a kubeconfig may have.
	Dial kubeconfig.Policy
	// Timeout of one request.
	Timeout time.Duration

	mu sync.Mutex
	of map[string]shoot // by namespace; needs mu
}

type shoot struct {
	uid       types.UID
	version   string
	client    client.Client
	transport *http.Transport
}

// Of gives the client of the shoot in a namespace. What it is made from is what is stored: the namespace, the Secret's UID and its version
// all match, so that no shoot is judged with another's client.
func (s *Clients) Of(ctx context.Context, namespace string) (client.Client, error) {
	stored := &corev1.Secret{}
	if err := s.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: s.Secret}, stored); err != nil {
		if apierrors.IsNotFound(err) {
			s.forget(namespace)
		}
		return nil, fmt.Errorf("read the shoot's kubeconfig: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.of[namespace]
	if ok && known.uid == stored.UID && known.version == stored.ResourceVersion {
		return known.client, nil
	}
	if ok {
		known.transport.CloseIdleConnections()
		delete(s.of, namespace)
	}
	fresh, err := s.connect(stored)
	if err != nil {
		return nil, fmt.Errorf("use key %s of Secret %s: %w", s.Key, s.Secret, err)
	}
	if s.of == nil {
		s.of = map[string]shoot{}
	}
	s.of[namespace] = fresh
	return fresh.client, nil
}

// connect makes a client and asks nothing yet.
func (s *Clients) connect(stored *corev1.Secret) (shoot, error) {
	content, ok := stored.Data[s.Key]
	if !ok {
		return shoot{}, errors.New("there is no such key")
	}
	access, err := s.Dial.Parse(content)
	if err != nil {
		return shoot{}, err
	}
	transport := access.Transport(s.Dial)
	through := &http.Client{Transport: bounded{authorized{access, transport}}, Timeout: s.Timeout, CheckRedirect: stay}
	c, err := client.New(&rest.Config{Host: access.URL("").String()}, client.Options{HTTPClient: through, Scheme: s.Scheme})
	if err != nil {
		return shoot{}, fmt.Errorf("make a client of the shoot: %w", err)
	}
	return shoot{uid: stored.UID, version: stored.ResourceVersion, client: Believable{Client: c}, transport: transport}, nil
}

// forget the client of a shoot that is gone.
func (s *Clients) forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.of[namespace]; ok {
		known.transport.CloseIdleConnections()
		delete(s.of, namespace)
	}
}

// stay keeps a client from following a redirect: the server that is asked next would get the credentials, too.
func stay(next *http.Request, _ []*http.Request) error {
	return fmt.Errorf("the shoot's API server redirects to %s, which is not followed", next.URL.Host)
}

// mostBytes of one answer: a list of more than a thousand nodes fits. What is in a shoot belongs to its owner, who may not take
// the memory that other shoots' checks need.
const mostBytes = 32 << 20

// bounded ends answers that are too large with an error.
type bounded struct{ next http.RoundTripper }

// RoundTrip sends the request.
func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, mostBytes)
	}
	return response, err
}

// authorized adds the kubeconfig's credentials.
type authorized struct {
	access *kubeconfig.Access
	next   http.RoundTripper
}

// RoundTrip sends the request with credentials.
func (a authorized) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	a.access.Authorize(request.Header)
	return a.next.RoundTrip(request)
}
