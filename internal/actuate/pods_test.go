package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// admittedWeeder is a stored WeederConfig in Autohealer's own namespace, admitted by the built-in rules.
func admittedWeeder(t *testing.T) AdmittedWeeder {
	t.Helper()
	wc := &v1alpha1.WeederConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "weeder", UID: "weeder-uid", Generation: 2},
		Spec: v1alpha1.WeederConfigSpec{ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{
			"etcd": {PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"app": "api"}}}},
		}},
	}
	g, err := guard.New(guard.Options{OwnNamespace: "default", Authorizer: nobody{}})
	if err != nil {
		t.Fatal(err)
	}
	v, verdict := guard.Admit(context.Background(), g, wc)
	if !v.Valid() {
		t.Fatalf("the config isn't admitted: %s", verdict.Message())
	}
	return v
}

// nobody may do anything: in Autohealer's own namespace nobody is asked.
type nobody struct{}

func (nobody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", nil
}

// crashLooping is a stored pod with a plan to delete it.
func crashLooping(t *testing.T) (*corev1.Pod, weeder.Plan) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "api-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}, TerminationGracePeriodSeconds: new(int64)},
	}
	if err := api.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), pod) })
	return pod, weeder.Plan{Pod: *weeder.ReadPod(pod), Delete: &weeder.Deletion{
		Config: "weeder-uid", Key: types.NamespacedName{Namespace: "default", Name: "weeder"}, Generation: 2, Service: "etcd",
		Trigger: time.Unix(1000, 0), Loop: weeder.CrashLoop{Container: "main", Restarts: 7, ExitCode: 3},
	}}
}

func pods(lines *[]string) *Pods {
	return &Pods{Client: podsAPI, Current: current{}, Acts: funcr.NewJSON(func(line string) { *lines = append(*lines, line) }, funcr.Options{})}
}

// unopposed: nothing has come to stand before a deletion.
func unopposed() error { return nil }

func stays(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	var now corev1.Pod
	if err := api.Get(t.Context(), types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, &now); err != nil || now.UID != pod.UID {
		t.Errorf("the pod is gone: %v", err)
	}
}

func TestACrashLoopingPodIsDeletedAndOneLineTellsOfIt(t *testing.T) {
	admitted := admittedWeeder(t)
	for _, evict := range []bool{false, true} {
		pod, plan := crashLooping(t)
		plan.Delete.Evict = evict
		var lines []string
		if err := pods(&lines).Apply(t.Context(), plan, admitted, unopposed); err != nil {
			t.Fatal(err)
		}
		if err := api.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "api-0"}, pod); !apierrors.IsNotFound(err) {
			t.Errorf("evict %t: the pod is there: %v", evict, err)
		}
		var line map[string]any
		if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &line) != nil {
			t.Fatalf("lines: %q", lines)
		}
		verb := map[bool]string{false: "Delete", true: "Evict"}[evict]
		for key, want := range map[string]string{
			"verb": verb, "reason": "ServiceRecovered", "policyKind": "WeederConfig", "policyNamespace": "default", "policy": "weeder",
			"policyUID": "weeder-uid", "policyGeneration": "2", "targetKind": "Pod", "target": "api-0", "targetUID": string(plan.Pod.UID),
			"service": "etcd", "container": "main", "restarts": "7", "exitCode": "3",
		} {
			if fmt.Sprint(line[key]) != want {
				t.Errorf("%s is %v, want %s", key, line[key], want)
			}
		}
	}
}

func TestAPodThatChangedOrWasReplacedStays(t *testing.T) {
	admitted := admittedWeeder(t)
	for name, change := range map[string]func(*testing.T, *corev1.Pod) *corev1.Pod{
		"it recovered": func(t *testing.T, pod *corev1.Pod) *corev1.Pod {
			pod.Status.Phase = corev1.PodRunning
			if err := api.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			return pod
		},
		"another has its name": func(t *testing.T, pod *corev1.Pod) *corev1.Pod {
			if err := api.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			again, _ := crashLooping(t)
			return again
		},
	} {
		for _, evict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, evict %t", name, evict), func(t *testing.T) {
				pod, plan := crashLooping(t)
				plan.Delete.Evict = evict
				pod = change(t, pod)
				var lines []string
				err := pods(&lines).Apply(t.Context(), plan, admitted, unopposed)
				if !errors.Is(err, ErrStale) || !Certain(err) || len(lines) > 0 {
					t.Errorf("error %v, lines %q", err, lines)
				}
				stays(t, pod)
			})
		}
	}
}

// In a namespace that is being deleted nothing may be created any more, an eviction neither; its pods go anyway.
func TestAPodIsntEvictedFromANamespaceThatEnds(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ending"}} // there is no controller that would complete its deletion
	if err := errors.Join(api.Create(t.Context(), ns), api.Delete(t.Context(), ns)); err != nil {
		t.Fatal(err)
	}
	_, plan := crashLooping(t)
	plan.Delete.Evict, plan.Pod.Namespace = true, ns.Name
	var lines []string
	err := pods(&lines).Apply(t.Context(), plan, admittedWeeder(t), unopposed)
	if !errors.Is(err, ErrStale) || !NamespaceEnds(err) || !Certain(err) || len(lines) > 0 {
		t.Errorf("error %v, lines %q", err, lines)
	}
}

func TestWhenAWriteFailsBecauseOfItsNamespace(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ended"}}
	if err := errors.Join(api.Create(t.Context(), ns), api.Delete(t.Context(), ns)); err != nil {
		t.Fatal(err)
	}
	secret := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "namespaces"}}
	}
	for name, test := range map[string]struct {
		err  error
		ends bool
	}{
		"it is being deleted": {api.Create(t.Context(), secret("ended")), true},
		"there is none":       {api.Create(t.Context(), secret("nowhere")), true},
		"the object is gone":  {api.Delete(t.Context(), secret("default")), false},
		"it has no name":      {api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}), false},
		"no failure":          {nil, false},
	} {
		if got := NamespaceEnds(test.err); got != test.ends {
			t.Errorf("%s: %v: %v", name, got, test.err)
		}
	}
}

func TestNothingIsDeletedWithoutAnAdmissionThatCoversIt(t *testing.T) {
	admitted := admittedWeeder(t)
	for name, test := range map[string]struct {
		admitted AdmittedWeeder
		pods     func(*Pods)
		plan     func(*weeder.Plan)
		want     error
	}{
		"none":                    {plan: func(*weeder.Plan) {}, want: ErrNotValidated},
		"another config's":        {admitted: admitted, plan: func(p *weeder.Plan) { p.Delete.Config = "other" }, want: ErrNotValidated},
		"another generation's":    {admitted: admitted, plan: func(p *weeder.Plan) { p.Delete.Generation = 3 }, want: ErrNotValidated},
		"no deletion":             {admitted: admitted, plan: func(p *weeder.Plan) { p.Delete = nil }, want: ErrNotValidated},
		"of no state of the pod":  {admitted: admitted, plan: func(p *weeder.Plan) { p.Pod.ResourceVersion = "" }, want: ErrNotValidated},
		"not what is stored":      {admitted: admitted, pods: func(p *Pods) { p.Current = current{kube.ErrSuperseded} }, want: ErrStale},
		"a replica not in charge": {admitted: admitted, pods: func(p *Pods) { p.Leads = func() bool { return false } }, want: ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			pod, plan := crashLooping(t)
			if test.plan != nil {
				test.plan(&plan)
			}
			var lines []string
			p := pods(&lines)
			if test.pods != nil {
				test.pods(p)
			}
			if err := p.Apply(t.Context(), plan, test.admitted, unopposed); !errors.Is(err, test.want) || !Certain(err) || len(lines) > 0 {
				t.Errorf("error %v, lines %q", err, lines)
			}
			stays(t, pod)
		})
	}
}

func TestADeletionIsAskedForOnce(t *testing.T) {
	_, plan := crashLooping(t)
	for _, plan.Delete.Evict = range []bool{false, true} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+r.URL.Path)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusInternalServerError)
		}))
		t.Cleanup(server.Close)
		var lines []string
		p := pods(&lines)
		var err error
		if p.Client, err = PodClient(&rest.Config{Host: server.URL}, server.Client()); err != nil {
			t.Fatal(err)
		}
		err = p.Apply(t.Context(), plan, admittedWeeder(t), unopposed)
		if len(asked) != 1 || Certain(err) || len(lines) != 1 {
			t.Errorf("asked %q, error %v, lines %q", asked, err, lines)
		}
	}
}

func TestADeletionWithoutAnAnswerIsToldAsSuch(t *testing.T) {
	_, plan := crashLooping(t)
	var lines []string
	ctx, cancel := context.WithCancel(t.Context())
	err := pods(&lines).Apply(ctx, plan, admittedWeeder(t), func() error { cancel(); return nil })
	if Certain(err) || len(lines) != 1 || !strings.Contains(lines[0], `"unconfirmed":"`) {
		t.Errorf("error %v, lines %q", err, lines)
	}
}

func TestWhatIsAskedLastKeepsAPod(t *testing.T) {
	pod, plan := crashLooping(t)
	var lines []string
	opposed := errors.New("its window is over")
	if err := pods(&lines).Apply(t.Context(), plan, admittedWeeder(t), func() error { return opposed }); !errors.Is(err, opposed) || len(lines) > 0 {
		t.Errorf("%v, %d lines in the audit trail", err, len(lines))
	}
	stays(t, pod)
}
