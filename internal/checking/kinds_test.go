package checking

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// slowServer is an API server that may hang.
type slowServer struct {
	mu     sync.Mutex
	asked  int
	serves bool
	goOn   chan struct{}
}

func (a *slowServer) ask(_ context.Context, kind schema.GroupVersionKind) (meta.RESTScopeName, error) {
	<-a.goOn
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked++; !a.serves {
		return "", &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	}
	return meta.RESTScopeNameRoot, nil
}

func TestAKindThatIsNotServedIsAskedForNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := schema.GroupVersionKind{Group: "e.org", Version: "v1", Kind: "Later"}
		server := &slowServer{goOn: make(chan struct{})}
		s := &scopes{ask: server.ask, clock: clock.RealClock{}}

		impatient, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the check gave no result"))
		defer cancel()
		if _, err := s.Of(impatient, kind); err == nil || err.Error() != "the check gave no result" {
			t.Fatalf("while the API server hangs: %v", err)
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, err := s.Of(t.Context(), kind); !meta.IsNoMatchError(err) {
					t.Errorf("not served: %v", err)
				}
			})
		}
		synctest.Wait()
		close(server.goOn)
		all.Wait()
		for range 100 {
			if _, err := s.Of(t.Context(), kind); !meta.IsNoMatchError(err) {
				t.Fatalf("not served: %v", err)
			}
		}
		if server.asked != 1 {
			t.Errorf("asked %d times", server.asked)
		}

		server.serves = true
		time.Sleep(failureTTL)
		for range 100 {
			if scope, err := s.Of(t.Context(), kind); scope != meta.RESTScopeNameRoot || err != nil {
				t.Fatalf("served: %s, %v", scope, err)
			}
		}
		if server.asked != 2 {
			t.Errorf("asked %d times in all", server.asked)
		}
	})
}

func TestAQuestionThatHangsIsAskedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := &scopes{clock: clock.RealClock{}, ask: func(ctx context.Context, _ schema.GroupVersionKind) (meta.RESTScopeName, error) {
			if asked++; asked > 1 {
				return meta.RESTScopeNameRoot, nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}}
		began := time.Now()
		if _, err := s.Of(t.Context(), schema.GroupVersionKind{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != requestTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		time.Sleep(failureTTL)
		if scope, err := s.Of(t.Context(), schema.GroupVersionKind{}); err != nil || scope != meta.RESTScopeNameRoot {
			t.Errorf("asked anew: %q, %v", scope, err)
		}
	})
}
