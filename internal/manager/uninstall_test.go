package manager

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// stored is a policy as the API server has it.
func stored(kind, namespace, name string, finalizers ...string) runtime.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
	}
}

func clientOf(t *testing.T, objects ...runtime.Object) *fake.FakeMetadataClient {
	t.Helper()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewSimpleMetadataClient(scheme, objects...)
}

func TestWhatWaitsForTheManagerIsFound(t *testing.T) {
	g := NewWithT(t)
	left, err := notUndone(t.Context(), clientOf(t,
		stored("ConditionSet", "", "acts", "example.com/keep", v1alpha1.FinalizerUndo),
		stored("ConditionSet", "", "observes"),
		stored("ProbeConfig", "shoot", "main", v1alpha1.FinalizerUndo),
		stored("OutlierPolicy", "shoot", "served"),
		stored("OutlierPolicy", "shoot", "patched", v1alpha1.FinalizerUndo),
		stored("HealthCheckRegistration", "", "others", "example.com/keep"),
	))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(Equal([]string{"ConditionSet acts", "ProbeConfig main in namespace shoot", "OutlierPolicy patched in namespace shoot"}))
}

func TestKindsThatAreGoneHaveNoPolicies(t *testing.T) {
	g := NewWithT(t)
	client := clientOf(t)
	client.PrependReactor("list", "conditionsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("conditionsets").GroupResource(), "")
	})
	left, err := notUndone(t.Context(), client)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

func TestWhatCanNotBeReadMayBeThere(t *testing.T) {
	client := clientOf(t)
	client.PrependReactor("list", "probeconfigs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	_, err := notUndone(t.Context(), client)
	NewWithT(t).Expect(err).To(MatchError("list probeconfigs: forbidden"))
}

func TestARefusalNamesPoliciesAndCommands(t *testing.T) {
	g := NewWithT(t)
	g.Expect(refusal([]string{"ConditionSet a"})).To(And(
		HavePrefix("Autohealer isn't uninstalled: 1 policy is stored. "),
		ContainSubstring("\n  ConditionSet a\n"),
		ContainSubstring("\n  kubectl delete conditionsets,probeconfigs,outlierpolicies,healthcheckregistrations --all -A\n"),
		HaveSuffix("\n  kubectl autohealer uninstall\n"),
	))
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprint("ConditionSet ", i))
	}
	g.Expect(refusal(many)).To(And(ContainSubstring(": 30 policies are stored. "), ContainSubstring("\n  ConditionSet 19\n  … and 10 more\n"), Not(ContainSubstring("ConditionSet 20"))))
}

func TestTheCheckTakesNoFurtherArguments(t *testing.T) {
	for _, args := range [][]string{{"now"}, {"--force"}} {
		var out strings.Builder
		flags := flag.NewFlagSet("manager", flag.ContinueOnError)
		flags.SetOutput(&out)
		g := NewWithT(t)
		g.Expect(checkUninstall(t.Context(), flags, args, &out)).To(Equal(2))
		g.Expect(out.String()).To(ContainSubstring("autohealer: uninstall-check takes no argument but --kubeconfig\n"))
	}
}
