package actuate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// mute is an API server that never answers.
type mute struct{ client.Client }

func (mute) IsObjectNamespaced(runtime.Object) (bool, error) { return true, nil }

func (mute) SubResource(string) client.SubResourceClient { return muteScale{} }

func (mute) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

type muteScale struct{ client.SubResourceClient }

func (muteScale) Get(ctx context.Context, _, _ client.Object, _ ...client.SubResourceGetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestADependentOfWhichNothingIsHeardIsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := (&ScaleReader{Live: mute{}, Client: mute{}}).Read(t.Context(), "default", probe.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "kcm"})
		if took := time.Since(began); took != 10*time.Second || !o.Unseen || !strings.Contains(o.Unread, "deadline exceeded") {
			t.Errorf("after %s: %+v", took, o)
		}
	})
}
