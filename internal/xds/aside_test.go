package xds

import (
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

func TestNoStreamIsServedWhileServesIsFalse(t *testing.T) {
	g := NewWithT(t)
	var serves atomic.Bool
	w := start(t, Options{Serves: serves.Load})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	g.Expect(status.Code(w.refusal(nil))).To(Equal(codes.Unavailable))

	serves.Store(true)
	client := w.connect(xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(1))

	serves.Store(false)
	g.Eventually(client.Ended(), "5s").Should(BeClosed(), "streams that are open end")
	g.Expect(client.Wire().Removed).To(BeEmpty())
	g.Expect(status.Code(w.refusal(nil))).To(Equal(codes.Unavailable))
}
