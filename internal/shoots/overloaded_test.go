package shoots

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

func TestAnOverloadedServerIsReported(t *testing.T) {
	const nodes = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`
	const discovered = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"nodes","kind":"Node","namespaced":false,"verbs":["list","watch"]}]}`
	for name, c := range map[string]struct {
		// refusals come before the server answers.
		refusals   int32
		retryAfter string
		told       bool
	}{
		"once":               {1, "1", false},
		"for good":           {1 << 30, "1", true},
		"once, for too long": {1, "30", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case asked.Add(1) <= c.refusals:
					w.Header().Set("Retry-After", c.retryAfter)
					w.WriteHeader(http.StatusTooManyRequests)
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Too many requests, please try again later.","reason":"TooManyRequests","code":429}`)
				case r.URL.Path == "/api/v1":
					_, _ = io.WriteString(w, discovered)
				default:
					_, _ = io.WriteString(w, nodes)
				}
			}))
			defer server.Close()
			ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "gardener"}, Data: map[string][]byte{"kubeconfig": kubeconfigOf(server.URL, ", certificate-authority-data: "+ca)}}
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			s := &Clients{
				Secrets: fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).Build(), Secret: "gardener", Key: "kubeconfig", Scheme: scheme,
				Dial: kubeconfig.Policy{AllowLoopback: true}, Timeout: 10 * time.Second,
			}
			shoot, err := s.Of(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), s.Timeout)
			defer cancel()
			_, err = Nodes(ctx, shoot)
			if isReported := err != nil && strings.Contains(err.Error(), "Too many requests"); isReported != c.told || err != nil && !c.told {
				t.Errorf("after %d requests: %v", asked.Load(), err)
			}
			if c.refusals == 1 {
				return
			}
			connection, err := s.Connection(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			m := Open(Source{Client: connection.WatchClient, Timeout: s.Timeout, Clock: clock.RealClock{}, List: func() client.ObjectList { return &corev1.NodeList{} }, Changed: func(client.Object) {}})
			defer m.Close()
			err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, s.Timeout-time.Second, true, func(context.Context) (bool, error) {
				_, err := m.Objects()
				return !errors.Is(err, ErrNotSynced), nil
			})
			if _, is := m.Objects(); err != nil || is == nil || !strings.Contains(is.Error(), "Too many requests") {
				t.Errorf("of a watch it says %v", is)
			}
		})
	}
}
