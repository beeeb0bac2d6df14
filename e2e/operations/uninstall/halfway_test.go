package uninstall

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/e2e/harness"
	verb "github.com/resourcestack/autohealer/internal/cli/uninstall"
)

var errKilled = errors.New("killed")

// mortal is a client that is killed after so many writes.
func mortal(writes int) client.Client {
	GinkgoHelper()
	c, err := client.NewWithWatch(h.Config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	write := func(do func() error) error {
		if writes == 0 {
			return errKilled
		}
		err := do()
		if err == nil {
			writes--
		}
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch o.(type) {
			case *authorizationv1.SelfSubjectAccessReview, *authenticationv1.SelfSubjectReview: // questions
				return c.Create(ctx, o, opts...)
			}
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
}

func gone(ctx context.Context, args ...string) bool {
	GinkgoHelper()
	out, err := h.Kubectl(ctx, append([]string{"get", "--ignore-not-found", "-o", "name"}, args...)...)
	Expect(err).NotTo(HaveOccurred())
	return out == ""
}

var _ = Describe("kubectl autohealer uninstall that is killed", func() {
	It("goes on where it was, after whatever write it was", func(ctx SpecContext) {
		installAndBreak(ctx)
		kinds, err := discovery.NewDiscoveryClientForConfig(h.Config)
		Expect(err).NotTo(HaveOccurred())
		runs, wrote := 0, []string{}
		for ; ; runs++ {
			u := verb.Uninstaller{
				Client: mortal(1), Kinds: memory.NewMemCacheClient(kinds), Clock: clock.RealClock{}, Namespace: harness.Namespace, Manager: "autohealer-manager",
				Leads: func(context.Context) (bool, bool, string) { return false, true, "" }, Timeout: time.Minute,
				Report: func(what string) { wrote = append(wrote, fmt.Sprint(runs, ": ", what)) }, Progress: func(string) {},
			}
			found, err := u.Survey(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(found.Blocked).To(BeEmpty())
			if found.Nothing() {
				break
			}
			if err := u.Run(ctx, found); err != nil {
				Expect(err).To(MatchError(errKilled), "%q", wrote)
			}
			if !stopped && gone(ctx, "deployment", "-n", harness.Namespace, "autohealer-manager") {
				stop() // the pods that the Deployment would have had
			}
			Expect(runs).To(BeNumerically("<", 200), "%q", wrote)
		}
		AddReportEntry("runs", runs)
		Expect(runs).To(BeNumerically(">", 20))
		expectNothingLeft(ctx)
	}, NodeTimeout(2*specTime)) // an uninstall for each of some sixty writes
})
