package rights

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// counting counts TokenReviews, and lets none through when it is broken.
type counting struct {
	http.RoundTripper

	asked  atomic.Int32
	broken atomic.Bool
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		c.asked.Add(1)
		if c.broken.Load() {
			return nil, http.ErrHandlerTimeout
		}
	}
	return c.RoundTripper.RoundTrip(r)
}

func authorizerOf(g *WithT, config *rest.Config) authorizer.Authorizer {
	asking, err := NewAuthorizer(config)
	g.Expect(err).NotTo(HaveOccurred())
	return asking
}

func TestWhoIsUnknownIsToldSoAndAskedAboutOnce(t *testing.T) {
	g := NewWithT(t)
	config := server(t)
	client, err := rest.HTTPClientFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	way := &counting{RoundTripper: client.Transport}
	client.Transport = way
	filter, err := OfMetrics(config, client)
	g.Expect(err).NotTo(HaveOccurred())
	var logged atomic.Int32
	served := false
	log := funcr.New(func(string, string) { logged.Add(1) }, funcr.Options{})
	handler, err := filter(log, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if !served {
			t.Error("somebody who may not is let in")
		}
	}))
	g.Expect(err).NotTo(HaveOccurred())
	ask := func(token string) int {
		r, w := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody), httptest.NewRecorder()
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		handler.ServeHTTP(w, r)
		return w.Code
	}
	for range 20 {
		g.Expect(ask("made-up")).To(Equal(http.StatusUnauthorized))
	}
	g.Expect(ask("")).To(Equal(http.StatusUnauthorized))
	g.Expect(way.asked.Load()).To(BeEquivalentTo(1))
	g.Expect(logged.Load()).To(BeZero())

	core := kubernetes.NewForConfigOrDie(config)
	tokenOf := func(name string) string {
		_, err := core.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		made, err := core.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return made.Status.Token
	}
	g.Expect(ask(tokenOf("other"))).To(Equal(http.StatusForbidden))
	_, err = core.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = core.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	reads := tokenOf("reader")
	g.Eventually(func() authorizer.Decision { // the server's own view of roles is a moment behind
		decision, _, err := authorizerOf(g, config).Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "system:serviceaccount:default:reader"}, Verb: "get", Path: "/metrics",
		})
		g.Expect(err).NotTo(HaveOccurred())
		return decision
	}, "5s").Should(Equal(authorizer.DecisionAllow))
	served = true
	g.Expect(ask(reads)).To(Equal(http.StatusOK))

	way.broken.Store(true)
	g.Expect(ask(reads)).To(Equal(http.StatusOK), "an answer is kept")
	for _, token := range []string{"a", "b", "c"} {
		g.Expect(ask(token)).To(Equal(http.StatusServiceUnavailable), "nobody knows")
	}
	g.Expect(logged.Load()).To(BeEquivalentTo(1))
}
