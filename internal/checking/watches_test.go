package checking

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// respond is what becomes of a request, whose answer ends when dropped is closed.
type respond func(r *http.Request, dropped <-chan struct{}) (*http.Response, error)

// apiServer has one ConfigMap, in the version that it begins with. It answers requests without a network.
type apiServer struct {
	mu sync.Mutex
	// list and watch are what becomes of new requests; nil: they are answered well.
	list, watch respond
	// drop ends the watches that are open; needs mu.
	drop chan struct{}
	// watches that are open.
	watches atomic.Int32
}

func (s *apiServer) becomes(list, watch respond) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.watch = list, watch
	close(s.drop)
	s.drop = make(chan struct{})
}

func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	watches := r.URL.Query().Get("watch") != ""
	s.mu.Lock()
	drop, respond := s.drop, s.list
	if watches && (respond == nil || r.URL.Query().Get("sendInitialEvents") == "") {
		respond = s.watch
	}
	s.mu.Unlock()
	switch {
	case respond != nil:
		return respond(r, drop)
	case watches:
		return s.events(r, drop)
	}
	return answer(r, http.StatusOK, io.NopCloser(strings.NewReader(
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`+one+`]}`))), nil
}

const one = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"n","name":"c","resourceVersion":"1"}}`

func (s *apiServer) events(r *http.Request, dropped <-chan struct{}) (*http.Response, error) {
	events, tell := io.Pipe()
	s.watches.Add(1)
	go func() {
		defer s.watches.Add(-1)
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			_, _ = fmt.Fprint(tell, `{"type":"ADDED","object":`, one, `}{"type":"BOOKMARK","object":`,
				strings.Replace(one, `"resourceVersion"`, `"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion"`, 1), `}`)
		}
		select {
		case <-dropped:
		case <-r.Context().Done():
		}
		_ = tell.Close()
	}()
	return answer(r, http.StatusOK, events), nil
}

func answer(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}
}

func refusing(code int, reason, words string) respond {
	return func(r *http.Request, _ <-chan struct{}) (*http.Response, error) {
		refused := answer(r, code, io.NopCloser(strings.NewReader(fmt.Sprintf(
			`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, words, reason, code))))
		if code == http.StatusTooManyRequests {
			refused.Header.Set("Retry-After", "1")
		}
		return refused, nil
	}
}

func ending(*http.Request, <-chan struct{}) (*http.Response, error) { return nil, io.EOF }

func hanging(r *http.Request, _ <-chan struct{}) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// stalling begins an answer and never tells anything.
func stalling(r *http.Request, dropped <-chan struct{}) (*http.Response, error) {
	told, tell := io.Pipe()
	go func() {
		select {
		case <-dropped:
		case <-r.Context().Done():
		}
		_ = tell.Close()
	}()
	return answer(r, http.StatusOK, told), nil
}

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// watching runs the watches of what a server has, in a synctest bubble.
func watching(t *testing.T, s *apiServer) (*Watches, *told) {
	t.Helper()
	handlers := utilruntime.ErrorHandlers // of which one waits for the real time, decades from a bubble's
	utilruntime.ErrorHandlers = nil
	changes := &told{n: map[Target]int{}}
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(configMaps, meta.RESTScopeNamespace)
	w, err := watchesBy(&rest.Config{Host: "https://api.example.org", QPS: -1}, &http.Client{Transport: s}, runtime.NewScheme(), kinds, changes.changed, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.cache.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		utilruntime.ErrorHandlers = handlers
	})
	synctest.Wait()
	return w, changes
}

func TestAKindThatNobodyNamesIsWatchedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{drop: make(chan struct{})}
		w, changes := watching(t, s)
		look := func() error {
			_ = w.Watch(t.Context(), configMaps, true)
			synctest.Wait()
			return w.Watch(t.Context(), configMaps, true)
		}
		itself := Target{configMaps.GroupKind(), types.NamespacedName{Namespace: "n", Name: "c"}}
		opened := func() int { _ = look(); return changes.of(itself)[0] }
		if at := opened(); at != 1 || look() != nil {
			t.Fatalf("at first it is told of %d times, with %v", at, look())
		}
		w.CloseOthers(sets.New(configMaps))
		if at := opened(); at != 1 {
			t.Errorf("one that is still named is told of anew: %d times", at)
		}
		w.CloseOthers(nil)
		synctest.Wait()
		if n := s.watches.Load(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		if at := opened(); at != 2 || look() != nil {
			t.Errorf("once it is asked for again it is told of %d times, with %v", at, look())
		}
	})
}

var troubles = map[string]struct {
	list, watch respond
	want        string // or, after a |, something else
}{
	"watches are throttled":                      {watch: refusing(429, "TooManyRequests", "storage is (re)initializing"), list: refusing(429, "TooManyRequests", "storage is (re)initializing"), want: "storage is (re)initializing"},
	"only watches that don't list are throttled": {watch: refusing(429, "TooManyRequests", "storage is (re)initializing"), want: "storage is (re)initializing"},
	"rights are taken away":                      {watch: refusing(403, "Forbidden", "may not"), list: refusing(403, "Forbidden", "may not"), want: "may not"},
	"only watching is forbidden":                 {watch: refusing(403, "Forbidden", "may not"), want: "may not"},
	"the kind is gone":                           {watch: refusing(404, "NotFound", "no such"), list: refusing(404, "NotFound", "no such"), want: "the kind isn't served"},
	"connections end":                            {watch: ending, list: ending, want: "EOF|connections end"},
	"nothing is answered":                        {watch: hanging, list: hanging, want: "no answer within 1m10s"},
	"lists begin and never end":                  {list: stalling, want: "no answer within 1m10s"},
}

func TestWhatWasSeenOfAKindIsntBelievedWhileItCantBeRead(t *testing.T) {
	for name, tt := range troubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &apiServer{drop: make(chan struct{})}
				w, changes := watching(t, s)
				look := func() error { return w.Watch(t.Context(), configMaps, true) }
				_ = look()
				synctest.Wait()
				if err := look(); err != nil {
					t.Fatalf("at first: %v", err)
				}
				follower := Target{schema.GroupKind{Group: "e.org", Kind: "Thing"}, types.NamespacedName{Namespace: "n", Name: "t"}}
				w.Follow(follower, []registration.Ref{{Kind: configMaps, Namespace: "n", Selector: labels.Everything()}})
				s.becomes(tt.list, tt.watch)
				time.Sleep(75 * time.Second)
				for range 600 {
					if !saysOneOf(look(), tt.want) {
						t.Fatalf("at %s it says: %v", time.Now(), look())
					}
					time.Sleep(time.Second)
				}
				itself := Target{configMaps.GroupKind(), types.NamespacedName{Namespace: "n", Name: "c"}}
				before := changes.of(follower, itself)
				s.becomes(nil, nil)
				time.Sleep(time.Minute)
				if err := look(); err != nil {
					t.Errorf("once it is well again: %v", err)
				}
				if after := changes.of(follower, itself); after[0] == before[0] || after[1] == before[1] {
					t.Errorf("of those that are told when it is well again there are %v, %v before", after, before)
				}
			})
		})
	}
}

func TestAKindThatCouldNeverBeReadSaysWhy(t *testing.T) {
	for name, tt := range troubles {
		if tt.list == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := watching(t, &apiServer{drop: make(chan struct{}), list: tt.list, watch: tt.watch})
				_ = w.Watch(t.Context(), configMaps, false)
				time.Sleep(75 * time.Second)
				for range 600 {
					if err := w.Watch(t.Context(), configMaps, false); !saysOneOf(err, tt.want) {
						t.Fatalf("at %s it says: %v", time.Now(), err)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func saysOneOf(err error, words string) bool {
	for word := range strings.SplitSeq(words, "|") {
		if err != nil && strings.Contains(err.Error(), word) {
			return true
		}
	}
	return false
}

func (c *told) of(targets ...Target) (n []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range targets {
		n = append(n, c.n[t])
	}
	return n
}
