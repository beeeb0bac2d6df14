package registration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// fixture is an object as its controller leaves it, with only the fields that decide.
type fixture struct {
	// Expected is Argo CD's verdict in Autohealer's words, and where Argo CD has none, what the project's documentation says.
	Expected health.Status `json:"expected"`
	// Differs says why the verdict here is another one, on purpose; "" where it isn't.
	Differs string         `json:"differs"`
	Object  map[string]any `json:"object"`
}

func (f *fixture) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: f.Object}
}

// fixtures are all, by the sample that has verdicts for their kinds.
func fixtures(t *testing.T) map[string][]fixture {
	t.Helper()
	files, err := filepath.Glob("testdata/verdicts/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	all := map[string][]fixture{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var of []fixture
		if err := yaml.UnmarshalStrict(text, &of); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range of { // numbers as the API machinery has them
			content, err := (&unstructured.Unstructured{Object: of[i].Object}).MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(content); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			of[i].Object = u.Object
		}
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = of
	}
	return all
}

// shipped are the checks of the samples with verdicts, by sample and kind.
func shipped(t *testing.T) map[string]map[schema.GroupKind]*Check {
	t.Helper()
	files, err := filepath.Glob("../../../config/samples/verdicts/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no samples", err)
	}
	all := map[string]map[schema.GroupKind]*Check{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		all[name] = map[schema.GroupKind]*Check{}
		for _, c := range sampleOf(t, "verdicts/"+name+".yaml").Checks {
			all[name][c.Kind.GroupKind()] = c
		}
	}
	return all
}

// judgedBy gives what a sample's check says of an object, or where there is none what builtin does, or status.
func judgedBy(c *Check, object *unstructured.Unstructured) health.Result {
	switch {
	case c != nil:
		return c.judge(object, object, rollout)
	case health.HasBuiltin(object.GroupVersionKind().GroupKind()):
		return health.Builtin(object, 5*time.Minute, rollout)
	}
	return health.ByStatus(object, 5*time.Minute)
}

// verdicts are the samples' checks, by sample and kind, and the objects to try them on.
type verdicts struct {
	samples map[string]map[schema.GroupKind]*Check
	objects map[string][]fixture
}

func TestVerdicts(t *testing.T) {
	v := verdicts{shipped(t), fixtures(t)}
	t.Run("they agree", v.agree)
	t.Run("each is tried", v.areTried)
	t.Run("of what is new and what goes", v.ofNewAndOld)
}

// agree: the samples' verdicts are Argo CD's where nothing is said of a reason, no sick object reads True without one, and the page of verdicts tells how
// many agree and where they don't.
func (v verdicts) agree(t *testing.T) {
	content, err := os.ReadFile("../../../docs/reference/verdicts.md")
	if err != nil {
		t.Fatal(err)
	}
	page := "\n" + string(content)
	all, agree, agreeByStatus := 0, 0, 0
	for _, name := range slices.Sorted(maps.Keys(v.objects)) {
		of := v.objects[name]
		var kinds []string
		byStatus, byCheck := 0, 0
		for i := range of {
			f, object := &of[i], of[i].object()
			check := v.samples[name][object.GroupVersionKind().GroupKind()]
			status, got := health.ByStatus(object, 5*time.Minute).Status, judgedBy(check, object)
			if !slices.Contains(kinds, object.GetKind()) {
				kinds = append(kinds, object.GetKind())
			}
			if status == f.Expected {
				byStatus++
			}
			if got.Status == f.Expected {
				byCheck++
			}
			if check != nil && got.Status == health.False && (!strings.HasPrefix(got.Detail, object.GetKind()+" x: ") || strings.Contains(got.Detail, "says nothing")) {
				t.Errorf("%s: %v is False, and nobody learns why: %s", name, f.Object, got.Detail)
			}
			told := f.Differs != "" && got.Status != f.Expected
			switch {
			case (check != nil || f.Expected == health.False && got.Status == health.True) && got.Status != f.Expected && !told:
				t.Errorf("%s: %v is %s instead of %s: %s", name, f.Object, got.Status, f.Expected, got.Detail)
			case f.Differs != "" && !told:
				t.Errorf("%s: %v is what it is expected to be, in spite of %q", name, f.Object, f.Differs)
			case told:
				says(t, page, fmt.Sprintf("\n| %s of %s | %s | %s | %s |\n", object.GetKind(), object.GroupVersionKind().Group, f.Expected, got.Status, f.Differs))
			}
		}
		row := fmt.Sprintf("\n| none | %s | %d | %d |  |\n", strings.Join(kinds, ", "), len(of), byStatus)
		if v.samples[name] != nil {
			row = fmt.Sprintf("\n| [%[1]s](../../config/samples/verdicts/%[1]s.yaml) | %[2]s | %[3]d | %[4]d | %[5]d |\n", name, strings.Join(kinds, ", "), len(of), byStatus, byCheck)
			all, agree, agreeByStatus = all+len(of), agree+byCheck, agreeByStatus+byStatus
		}
		says(t, page, row)
	}
	says(t, page, fmt.Sprintf("\n| all of these | | %d | %d | %d |\n", all, agreeByStatus, agree))
	if 100*agree < 95*all {
		t.Errorf("%d of %d objects agree", agree, all)
	}
}

func says(t *testing.T, page, row string) {
	t.Helper()
	if !strings.Contains(page, row) {
		t.Errorf("the page doesn't say%s", row)
	}
}

// areTried: registrations with the samples' checks are accepted as new, and of each verdict there are objects of which it says True and
// False; kinds may share one.
func (v verdicts) areTried(t *testing.T) {
	for name, checks := range v.samples {
		text, err := os.ReadFile("../../../config/samples/verdicts/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		hcr := &v1alpha1.HealthCheckRegistration{}
		if err := yaml.UnmarshalStrict(text, hcr); err != nil {
			t.Fatal(err)
		}
		if problems := TermsOf(hcr, nil, true).Problems; hcr.Name != name || len(problems) > 0 {
			t.Errorf("%s: %s: %q", name, hcr.Name, problems)
		}
		said := map[v1alpha1.CELCheck]map[health.Status]bool{}
		for i := range hcr.Spec.Checks {
			check := &hcr.Spec.Checks[i]
			if said[*check.Evaluate.CEL] == nil {
				said[*check.Evaluate.CEL] = map[health.Status]bool{health.False: neverFalse[check.Name]}
			}
			for _, f := range v.objects[name] {
				if object := f.object(); object.GetKind() == check.Object.Kind && strings.Split(object.GetAPIVersion(), "/")[0] == strings.Split(check.Object.APIVersion, "/")[0] {
					said[*check.Evaluate.CEL][judgedBy(checks[object.GroupVersionKind().GroupKind()], object).Status] = true
				}
			}
		}
		for _, check := range hcr.Spec.Checks {
			if by := said[*check.Evaluate.CEL]; !by[health.True] || !by[health.False] {
				t.Errorf("%s: the verdict of check %s isn't tried: %v", name, check.Name, by)
			}
		}
	}
}

// neverFalse are checks that wait until Progressing is believed no longer.
var neverFalse = map[string]bool{"advanced-cron-job": true, "game-server-set": true, "solr-cloud": true, "zookeeper-cluster": true}

// ofNewAndOld: an object that has no status yet is never sick, and one that is being deleted is Progressing; neither makes an expression
// fail.
func (v verdicts) ofNewAndOld(t *testing.T) {
	for name, of := range v.objects {
		for i := range of {
			object := of[i].object()
			check := v.samples[name][object.GroupVersionKind().GroupKind()]
			if check == nil {
				continue
			}
			goes := object.DeepCopy()
			goes.SetDeletionTimestamp(&metav1.Time{Time: rollout})
			if r := judgedBy(check, goes); r.Status != health.Progressing {
				t.Errorf("%s: while it is being deleted %v is %s: %s", name, of[i].Object, r.Status, r.Detail)
			}
			fresh := object.DeepCopy()
			fresh.SetGeneration(1)
			delete(fresh.Object, "spec")
			delete(fresh.Object, "status")
			fresh.SetLabels(nil)
			if r := judgedBy(check, fresh); r.Status == health.False || r.Status == health.Unknown {
				t.Errorf("%s: %s without a status is %s: %s", name, object.GetKind(), r.Status, r.Detail)
			}
		}
	}
}
