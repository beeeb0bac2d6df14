package rights

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// server is a real API server's, with an admin's rights.
func server(t *testing.T, change ...func(*envtest.APIServer)) *rest.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an API server")
	}
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join("..", "..", "bin")
	}
	if _, err := os.Stat(filepath.Join(assets, "kube-apiserver")); err != nil {
		t.Fatalf("no API server in %s: run `make controlplane`", assets)
	}
	env := &envtest.Environment{BinaryAssetsDirectory: assets}
	for _, c := range change {
		c(env.ControlPlane.GetAPIServer())
	}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return config
}

var deletion = authorizer.AttributesRecord{
	User: &user.DefaultInfo{Name: "jane"}, Verb: "delete", Resource: "pods", Namespace: "default", ResourceRequest: true,
}

func TestARightCountsAtOnceAndIsGoneInSeconds(t *testing.T) {
	g := NewWithT(t)
	config := server(t)
	ctx, roles := t.Context(), kubernetes.NewForConfigOrDie(config).RbacV1()
	_, err := roles.Roles("default").Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "weeder"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	asking, err := NewAuthorizer(config)
	g.Expect(err).NotTo(HaveOccurred())
	may := func() authorizer.Decision {
		decision, _, err := asking.Authorize(ctx, deletion)
		g.Expect(err).NotTo(HaveOccurred())
		return decision
	}
	g.Expect(may()).To(Equal(authorizer.DecisionNoOpinion))
	_, err = roles.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "weeder"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "weeder"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(may, "5s", 100*time.Millisecond).Should(Equal(authorizer.DecisionAllow), "a no isn't kept")
	g.Expect(roles.RoleBindings("default").Delete(ctx, "weeder", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(may, "13s", 100*time.Millisecond).Should(Equal(authorizer.DecisionNoOpinion))
}

// What one authorizer doesn't allow and another couldn't be asked about isn't refused.
func TestAnAuthorizerThatFailsHasNotSaidNo(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "authorizer.yaml")
	g.Expect(os.WriteFile(file, []byte("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "+
		"clusters: [{name: c, cluster: {server: 'https://"+cluster.Unserved()+"'}}], users: [{name: u, user: {}}]}"), 0o600)).To(Succeed())
	config := server(t, func(a *envtest.APIServer) {
		a.Configure().Set("authorization-mode", "RBAC", "Webhook").Set("authorization-webhook-config-file", file)
	})
	asking, err := NewAuthorizer(config)
	g.Expect(err).NotTo(HaveOccurred())
	decision, _, err := asking.Authorize(t.Context(), deletion)
	g.Expect(err).To(MatchError(And(ContainSubstring("the API server doesn't know: "), ContainSubstring("connection refused"))))
	g.Expect(decision).NotTo(Equal(authorizer.DecisionAllow))
	admin := deletion
	admin.User = &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	decision, _, err = asking.Authorize(t.Context(), admin)
	g.Expect(err).NotTo(HaveOccurred(), "the other authorizer allows it")
	g.Expect(decision).To(Equal(authorizer.DecisionAllow))
}

// An API server that doesn't want to answer, or can't, hasn't said no.
func TestNoAnswerIsAnError(t *testing.T) {
	g := NewWithT(t)
	config := server(t)
	nobody := rest.CopyConfig(config)
	nobody.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	away := rest.CopyConfig(config)
	away.Host = "https://" + cluster.Unserved()
	for says, config := range map[string]*rest.Config{"cannot create resource \"subjectaccessreviews\"": nobody, "connection refused": away} {
		asking, err := NewAuthorizer(config)
		g.Expect(err).NotTo(HaveOccurred())
		decision, _, err := asking.Authorize(t.Context(), deletion)
		g.Expect(err).To(MatchError(ContainSubstring(says)))
		g.Expect(decision).NotTo(Equal(authorizer.DecisionAllow))
	}
}
