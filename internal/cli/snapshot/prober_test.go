package snapshot

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
)

// probed names a dependent of each sort.
const probed = `
spec:
  internalKubeConfigSecretName: in
  externalKubeConfigSecretName: %s
  dependentResourceInfos:
  - {ref: {apiVersion: apps/v1, kind: Deployment, name: db}, scaleUp: {level: 0}, scaleDown: {level: 0}}
  - {ref: {apiVersion: apps/v1, kind: Deployment, name: gone}, scaleUp: {level: 0}, scaleDown: {level: 0}}
  - {ref: {apiVersion: apps/v1, kind: DaemonSet, name: agent}, scaleUp: {level: 0}, scaleDown: {level: 0}}
  - {ref: {apiVersion: autohealer.resourcestack.com/v1alpha1, kind: WeederConfig, name: stored}, scaleUp: {level: 0}, scaleDown: {level: 0}}
  - {ref: {apiVersion: example.com/v1, kind: Nothing, name: such}, scaleUp: {level: 0}, scaleDown: {level: 0}}
`

func kubeconfigOf(server, user string) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "https://%s"}}], users: [{name: a, user: %s}]}`, server, user))
}

// expiredAuthority is a field of a kubeconfig's cluster that trusts nobody who is valid any more.
func expiredAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return `", certificate-authority-data: "` + base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// applyProbed makes what a ProbeConfig names, with something wrong with most of it.
func applyProbed(t *testing.T, c client.Client) {
	t.Helper()
	const pods = "selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {containers: [{name: main, image: a}]}}"
	apply(t, c, &appsv1.Deployment{}, "{metadata: {name: db, namespace: shop}, spec: {replicas: 3, "+pods+"}}")
	apply(t, c, &corev1.Secret{}, "{metadata: {name: in, namespace: shop}, data: {kubeconfig: "+kubeconfigOf("db.shop.svc"+expiredAuthority(t), "{token: keep-me-here}")+", other: a2VlcA==}}")
	apply(t, c, &corev1.Secret{}, "{metadata: {name: out, namespace: shop}, data: {kubeconfig: "+kubeconfigOf("api.example.com:6443", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: keep-me-here, interactiveMode: Never}}")+"}}")
	apply(t, c, &corev1.Secret{}, "{metadata: {name: unrelated, namespace: shop}, data: {kubeconfig: "+kubeconfigOf("DB.shop.svc:443", "{token: keep-me-here}")+"}}")
	apply(t, c, &autoscalingv2.HorizontalPodAutoscaler{}, "{metadata: {name: db, namespace: shop}, spec: {maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: db}}}")
	apply(t, c, &v1alpha1.ProbeConfig{}, "metadata: {name: stored, namespace: shop}"+fmt.Sprintf(probed, "out"))
}

// compareProber: a ProbeConfig's forecast is the same live and from the file, as far as the file goes.
func compareProber(t *testing.T, g *guard.Guard, live, file *Snapshot) {
	t.Helper()
	ask := func(s *Snapshot, name, external string) (probe.Forecast, error) {
		pc := &v1alpha1.ProbeConfig{}
		if err := yaml.Unmarshal([]byte("metadata: {name: "+name+", namespace: shop}"+fmt.Sprintf(probed, external)), pc); err != nil {
			t.Fatal(err)
		}
		facts, err := NewFacts(t.Context(), s, g, "autohealer-system")
		if err != nil {
			t.Fatal(err)
		}
		return facts.ForecastProbeConfig(t.Context(), pc, g.Policy().Limits, time.Time{})
	}
	want := probe.Forecast{
		Targets: 1, Limit: 1, WouldScaleDown: 1, WouldScaleDownNames: []string{"shop/Deployment/db"},
		UnsafeKubeconfigs:     1,
		UnsafeKubeconfigNames: []string{"shop/out (the kubeconfig's user has an exec plugin, which would run a program in Autohealer; use a token or client certificate)"},
		ExpiredKubeconfigs:    1, ExpiredKubeconfigNames: []string{"shop/in (its last certificate authority expired at 2001-02-03T04:05:06Z)"},
		BackingDependents: 1, BackingDependentNames: []string{"shop/Deployment/db (db)"},
		UnscalableDependents: 3, UnscalableDependentNames: []string{"shop/DaemonSet/agent", "shop/Nothing/such", "shop/WeederConfig/stored"},
		MissingDependents: 1, MissingDependentNames: []string{"shop/Deployment/gone"},
		AutoscaledDependents: 1, AutoscaledDependentNames: []string{"shop/Deployment/db (HorizontalPodAutoscaler/db)"},
	}
	for name, s := range map[string]*Snapshot{"live": live, "file": file} {
		got, err := ask(s, "stored", "out")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(want, "Items")); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		second, err := ask(s, "second", "out")
		if err != nil || second.SharedDependents != 2 || second.SharedDependentNames[0] != "shop/Deployment/db (shop/stored)" {
			t.Errorf("%s: %v, shared with %q", name, err, second.SharedDependentNames)
		}
	}
	got, err := ask(live, "stored", "unrelated")
	if err != nil || got.SameServers != 1 || got.UnsafeKubeconfigs > 0 {
		t.Errorf("another Secret, live: %+v, %v", got, err)
	}
	if _, err := ask(file, "stored", "unrelated"); !errors.Is(err, guard.ErrNotKnown) {
		t.Errorf("another Secret, from the file: %v", err)
	}
}

func TestAUserWhoMayNotReadSecretsSkipsRules(t *testing.T) {
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := Of(t, time.Unix(0, 0), time.Unix(0, 0))
	s.live = &live{client: interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, nil)
		},
	})}
	facts, err := NewFacts(t.Context(), s, g, "autohealer-system")
	if err != nil {
		t.Fatal(err)
	}
	pc := &v1alpha1.ProbeConfig{}
	if err := yaml.Unmarshal([]byte("metadata: {name: a, namespace: shop}"+fmt.Sprintf(probed, "out")), pc); err != nil {
		t.Fatal(err)
	}
	if _, err := facts.ForecastProbeConfig(t.Context(), pc, g.Policy().Limits, time.Time{}); !errors.Is(err, guard.ErrNotKnown) || !apierrors.IsForbidden(err) {
		t.Errorf("%v", err)
	}
}

// TestAVersionThatIsntServedHasNoScale: what the file says of one version of a kind it doesn't say of another.
func TestAVersionThatIsntServedHasNoScale(t *testing.T) {
	s := Of(t, time.Unix(0, 0), time.Unix(0, 0), parsed[appsv1.Deployment](t, "{metadata: {namespace: shop, name: db}, spec: {replicas: 3, selector: {matchLabels: {app: db}}}}"),
		parsed[autoscalingv1.Scale](t, "{metadata: {namespace: shop, name: here, ownerReferences: [{apiVersion: example.com/v1, kind: Lama, name: here}]}, spec: {replicas: 2}}"))
	s.Answers("Deployment.v1beta1.apps --subresource=scale (not served)", "Lama.v1.example.com/gone -n shop --subresource=scale")
	lama := func(version, name string) probe.Ref {
		return probe.Ref{APIVersion: "example.com/" + version, Kind: "Lama", Name: name}
	}
	for ref, want := range map[probe.Ref]probe.DependentFacts{
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "db"}:      {Replicas: 3, Pods: "app=db"},
		{APIVersion: "apps/v1beta1", Kind: "Deployment", Name: "db"}: {Unscalable: true},
		lama("v1", "gone"): {Missing: true},
		lama("v1", "here"): {Replicas: 2},
	} {
		if got, err := s.Dependent(t.Context(), "shop", ref); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", ref, got, err, want)
		}
	}
	for _, name := range []string{"gone", "here"} {
		if got, err := s.Dependent(t.Context(), "shop", lama("v2", name)); !errors.Is(err, guard.ErrNotKnown) {
			t.Errorf("%s in another version: %+v, %v", name, got, err)
		}
	}
}
