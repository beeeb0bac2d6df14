package healthcheck

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

// believable is a client whose NotFound may be believed: what a cache lacks is asked for live, and a kind that isn't served
// is another error.
type believable struct {
	client.Client
	// live reader; nil when the client itself reads live.
	live client.Reader
}

// Get reads with the client, and live what that doesn't find.
func (b believable) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := b.Client.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) && b.live != nil {
		err = b.live.Get(ctx, key, into, options...)
	}
	// The API server answers so where nothing serves the path, for example after a CustomResourceDefinition was deleted.
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("the kind isn't served: %v", err) //nolint:errorlint // wrapped, it would still be taken for NotFound
	}
	return err
}

// shoots keeps a client for each shoot, as long as its kubeconfig is the same.
type shoots struct {
	secrets     client.Reader
	secret, key string
	scheme      *runtime.Scheme
	dial        kubeconfig.Policy
	timeout     time.Duration

	mu sync.Mutex
	of map[string]shoot // by namespace; needs mu
}

type shoot struct {
	uid       types.UID
	version   string
	client    client.Client
	transport *http.Transport
}

// client of the shoot in a namespace. What it is made from is what is stored: the namespace, the Secret's UID and its version
// all match, so that no shoot is judged with another's client.
func (s *shoots) client(ctx context.Context, namespace string) (client.Client, error) {
	stored := &corev1.Secret{}
	if err := s.secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: s.secret}, stored); err != nil {
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
		return nil, fmt.Errorf("use key %s of Secret %s: %w", s.key, s.secret, err)
	}
	if s.of == nil {
		s.of = map[string]shoot{}
	}
	s.of[namespace] = fresh
	return fresh.client, nil
}

// connect makes a client and asks nothing yet.
func (s *shoots) connect(stored *corev1.Secret) (shoot, error) {
	content, ok := stored.Data[s.key]
	if !ok {
		return shoot{}, errors.New("there is no such key")
	}
	access, err := s.dial.Parse(content)
	if err != nil {
		return shoot{}, err
	}
	transport := access.Transport(s.dial)
	through := &http.Client{Transport: authorized{access, transport}, Timeout: s.timeout}
	c, err := client.New(&rest.Config{Host: access.URL("").String()}, client.Options{HTTPClient: through, Scheme: s.scheme})
	if err != nil {
		return shoot{}, fmt.Errorf("make a client of the shoot: %w", err)
	}
	return shoot{uid: stored.UID, version: stored.ResourceVersion, client: believable{Client: c}, transport: transport}, nil
}

// forget the client of a shoot that is gone.
func (s *shoots) forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.of[namespace]; ok {
		known.transport.CloseIdleConnections()
		delete(s.of, namespace)
	}
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
