package actuate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// scaled are kinds with a scale subresource. An annotation makes a new generation of a Deployment, and not of the others.
var scaled = map[string]string{
	"Deployment": `{apiVersion: apps/v1, kind: Deployment, metadata: {name: kcm, namespace: default}, spec: {replicas: 3,
		selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: example.com/none}]}}}}`,
	"StatefulSet": `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: kcm, namespace: default}, spec: {replicas: 3, serviceName: s,
		selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: example.com/none}]}}}}`,
	"Machine": `{apiVersion: example.com/v1, kind: Machine, metadata: {name: kcm, namespace: default}, spec: {size: 3}}`,
}

const machines = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machines.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Machine, plural: machines}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {size: {type: integer}}}, status: {type: object, properties: {size: {type: integer}}}}}}
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
`

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return o
}

// prober is a stored ProbeConfig of one dependent, admitted by the built-in rules.
func prober(t *testing.T, dependent *unstructured.Unstructured) (*probe.Config, AdmittedProber) {
	t.Helper()
	pc := &v1alpha1.ProbeConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prober", UID: "prober-uid", Generation: 2},
		Spec: v1alpha1.ProbeConfigSpec{
			InternalKubeConfigSecretName: "internal", ExternalKubeConfigSecretName: "external",
			DependentResourceInfos: []v1alpha1.DependentResourceInfo{{
				Ref:     v1alpha1.DependentRef{APIVersion: dependent.GetAPIVersion(), Kind: dependent.GetKind(), Name: dependent.GetName()},
				ScaleUp: &v1alpha1.ScaleInfo{}, ScaleDown: &v1alpha1.ScaleInfo{},
			}},
		},
	}
	g, err := guard.New(guard.Options{OwnNamespace: "default", Authorizer: nobody{}})
	if err != nil {
		t.Fatal(err)
	}
	v, verdict := guard.Admit(context.Background(), g, pc)
	if !v.Valid() {
		t.Fatalf("the config isn't admitted: %s", verdict.Message())
	}
	c, err := probe.NewConfig(pc, "default")
	if err != nil {
		t.Fatal(err)
	}
	return c, v
}

// dependent stores an object of a kind with three replicas.
func dependent(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	if kind == "Machine" {
		establish(t)
	}
	o := parse(t, scaled[kind])
	if err := api.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	return o
}

func establish(t *testing.T) {
	t.Helper()
	crd := parse(t, machines)
	if err := client.IgnoreAlreadyExists(api.Create(t.Context(), crd)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := api.List(t.Context(), &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "MachineList"}})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("machines aren't served: %v", err)
		}
	}
}

var errDied = errors.New("the manager died")

// mortal is a client whose process dies before its n-th write, or whose writes fail from there on for another reason.
type mortal struct {
	client.Client
	writes, diesBefore int
	// of is what it dies of. Default: errDied.
	of error
}

func (m *mortal) die() error {
	if m.writes++; m.writes > m.diesBefore {
		return cmp.Or(m.of, errDied)
	}
	return nil
}

func (m *mortal) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := m.die(); err != nil {
		return err
	}
	return m.Client.Patch(ctx, o, p, opts...)
}

func (m *mortal) SubResource(name string) client.SubResourceClient {
	return &mortalScale{m.Client.SubResource(name), m}
}

type mortalScale struct {
	client.SubResourceClient
	m *mortal
}

func (s *mortalScale) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := s.m.die(); err != nil {
		return err
	}
	return s.SubResourceClient.Update(ctx, o, opts...)
}

// manager plans and writes until nothing is to be written, as one process does.
func manager(t *testing.T, c *probe.Config, v AdmittedProber, through client.Client, want probe.Direction, acts logr.Logger) error {
	t.Helper()
	scales := &Scales{Client: through, Current: current{}, Acts: acts}
	now := time.Now()
	var protection probe.Protection
	in := probe.Scaling{Config: c, Want: want, Now: now, DecidedAt: now}
	for range 5 {
		in.Objects = []probe.Object{look(t, c)}
		in.ProtectionSince = probe.ProtectionStart(c, in.Objects, protection, now)
		protection.Since = in.ProtectionSince
		plan := probe.PlanScaling(in)
		if len(plan.Acts) == 0 {
			return nil
		}
		if err := scales.Apply(t.Context(), ScaleChange{c, "default", plan.Acts[0]}, v); err != nil {
			return err
		}
		in.Flow = plan.Flow
	}
	t.Fatal("it writes on and on")
	return nil
}

func look(t *testing.T, c *probe.Config) probe.Object {
	t.Helper()
	o := (&ScaleReader{Live: api, Client: api}).Read(t.Context(), "default", c.Dependents[0].Ref)
	if o.Unread != "" {
		t.Fatal(o.Unread)
	}
	return o
}

func TestWhoeverDiesBetweenTwoWritesLeavesWhatTheNextCompletes(t *testing.T) {
	for kind := range scaled {
		for died := range 3 {
			t.Run(fmt.Sprintf("%s, before write %d", kind, died), func(t *testing.T) {
				c, v := prober(t, dependent(t, kind))
				for _, want := range []probe.Direction{probe.Down, probe.Up} {
					err := manager(t, c, v, &mortal{Client: api, diesBefore: died}, want, logr.Discard())
					if (died < 2) != errors.Is(err, errDied) {
						t.Fatalf("%s: %v", want, err)
					}
					if err := manager(t, c, v, api, want, logr.Discard()); err != nil {
						t.Fatalf("%s: %v", want, err)
					}
					o := look(t, c)
					switch {
					case want == probe.Down && (o.Replicas != 0 || o.Record == nil || o.Record.Replicas != 3 || o.Record.Owner != "prober-uid"):
						t.Errorf("down: %+v", o)
					case want == probe.Up && (o.Replicas != 3 || o.Record != nil):
						t.Errorf("up: %+v", o)
					}
				}
			})
		}
	}
}

// The config may be changed while something is scaled down. What came with a record goes with it.
func TestGardenersAnnotationGoesWithTheRecordThatItCameWith(t *testing.T) {
	for name, then := range map[string]func(*testing.T, *probe.Config, AdmittedProber){
		"when it is given back": func(t *testing.T, c *probe.Config, v AdmittedProber) {
			if err := manager(t, c, v, api, probe.Up, logr.Discard()); err != nil {
				t.Fatal(err)
			}
		},
		"when it was scaled up by others": func(t *testing.T, c *probe.Config, v AdmittedProber) {
			scaleByHand(t, 3)
			if err := manager(t, c, v, api, probe.Up, logr.Discard()); err != nil {
				t.Fatal(err)
			}
		},
		"when a record of another protection takes its place": func(t *testing.T, c *probe.Config, v AdmittedProber) {
			scaleByHand(t, 2)
			o := look(t, c)
			again := probe.Scaling{Config: c, Want: probe.Down, Objects: []probe.Object{o}, ProtectionSince: o.Record.Since.Add(time.Hour)}
			if err := (&Scales{Client: api, Current: current{}}).Apply(t.Context(), ScaleChange{c, "default", probe.PlanScaling(again).Acts[0]}, v); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := dependent(t, "Deployment")
			c, v := prober(t, d)
			annotated := func() bool {
				if err := api.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
					t.Fatal(err)
				}
				_, ok := d.GetAnnotations()["dependency-watchdog.gardener.cloud/meltdown-protection-active"]
				return ok
			}
			c.MeltdownProtection = true
			if err := manager(t, c, v, api, probe.Down, logr.Discard()); err != nil || !annotated() {
				t.Fatalf("scaled down, annotated %t: %v", annotated(), err)
			}
			c.MeltdownProtection = false
			if then(t, c, v); annotated() {
				t.Error("it still is annotated")
			}
		})
	}
}

func scaleByHand(t *testing.T, replicas int) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := api.Patch(t.Context(), parse(t, scaled["Deployment"]), patch); err != nil {
		t.Fatal(err)
	}
}

// trail is a logger that keeps its lines.
func trail(t *testing.T) (acts logr.Logger, lines *[]map[string]any) {
	t.Helper()
	lines = &[]map[string]any{}
	return funcr.NewJSON(func(text string) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		*lines = append(*lines, line)
	}, funcr.Options{}), lines
}

func TestWhatWasGivenBackIsToldThoughItsRecordStays(t *testing.T) {
	c, v := prober(t, dependent(t, "Deployment"))
	if err := manager(t, c, v, api, probe.Down, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	acts, lines := trail(t)
	conflict := apierrors.NewConflict(schema.GroupResource{}, "kcm", errors.New("someone wrote between"))
	if err := manager(t, c, v, &mortal{Client: api, diesBefore: 1, of: conflict}, probe.Up, acts); !errors.Is(err, ErrUnfinished) || !errors.Is(err, ErrStale) {
		t.Fatalf("want ErrUnfinished and ErrStale, got %v", err)
	}
	if err := manager(t, c, v, api, probe.Up, acts); err != nil {
		t.Fatal(err)
	}
	var verbs []any
	for _, line := range *lines {
		verbs = append(verbs, line["verb"])
	}
	if fmt.Sprint(verbs) != "[ScaleUp Forget]" {
		t.Errorf("the trail tells %v", verbs)
	}
}

func TestAScaleWithoutAnAnswerIsToldAsSuch(t *testing.T) {
	c, v := prober(t, dependent(t, "Deployment"))
	for _, test := range []struct {
		want       probe.Direction
		diesBefore int
		of         error
		told       string
	}{
		{probe.Down, 0, errDied, ""}, // no more than the record was asked for
		{probe.Down, 1, syscall.ECONNREFUSED, ""},
		{probe.Down, 0, errDied, "ScaleDown"}, // the record is there
		{probe.Down, 9, errDied, "ScaleDown"},
		{probe.Up, 0, errDied, "ScaleUp"},
	} {
		acts, lines := trail(t)
		err := manager(t, c, v, &mortal{Client: api, diesBefore: test.diesBefore, of: test.of}, test.want, acts)
		if (err == nil) != (test.diesBefore == 9) || !errors.Is(err, test.of) && err != nil {
			t.Fatalf("%+v: %v", test, err)
		}
		switch {
		case test.told == "":
			if len(*lines) != 0 {
				t.Errorf("%+v: the trail tells %v", test, *lines)
			}
		case len(*lines) != 1 || (*lines)[0]["verb"] != test.told || ((*lines)[0]["unconfirmed"] == nil) != (err == nil):
			t.Errorf("%+v: the trail tells %v", test, *lines)
		}
	}
}

func TestOneLineTellsOfEachScaling(t *testing.T) {
	c, v := prober(t, dependent(t, "Deployment"))
	acts, lines := trail(t)
	for _, want := range []probe.Direction{probe.Down, probe.Up} {
		if err := manager(t, c, v, api, want, acts); err != nil {
			t.Fatal(err)
		}
	}
	if len(*lines) != 2 {
		t.Fatalf("%d lines: %v", len(*lines), *lines)
	}
	for i, want := range []map[string]string{
		{"verb": "ScaleDown", "reason": "ProbeFails", "before": "3", "after": "0", "ruleSet": v.RuleSetHash()},
		{"verb": "ScaleUp", "reason": "ProbeSucceeds", "before": "0", "after": "3", "ruleSet": ""},
	} {
		want["policyKind"], want["policy"], want["policyUID"], want["targetKind"], want["target"] = "ProbeConfig", "prober", "prober-uid", "Deployment", "kcm"
		for key, text := range want {
			if fmt.Sprint((*lines)[i][key]) != text {
				t.Errorf("line %d: %s is %v, want %s", i, key, (*lines)[i][key], text)
			}
		}
	}
}

func TestWhatChangedSinceItWasReadIsLeftAlone(t *testing.T) {
	c, v := prober(t, dependent(t, "Deployment"))
	before := look(t, c)
	others := parse(t, scaled["Deployment"])
	if err := api.Patch(t.Context(), others, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":5}}`))); err != nil {
		t.Fatal(err)
	}
	plan := probe.PlanScaling(probe.Scaling{Config: c, Objects: []probe.Object{before}, Want: probe.Down, ProtectionSince: time.Unix(100, 0)})
	scales := &Scales{Client: api, Current: current{}}
	if err := scales.Apply(t.Context(), ScaleChange{c, "default", plan.Acts[0]}, v); !errors.Is(err, ErrStale) {
		t.Errorf("want ErrStale, got %v", err)
	}
	if o := look(t, c); o.Replicas != 5 || o.Record != nil {
		t.Errorf("it was written: %+v", o)
	}
}

func TestNothingIsScaledWithoutWhatAllowsIt(t *testing.T) {
	c, v := prober(t, dependent(t, "Deployment"))
	take := func() probe.Act {
		return probe.PlanScaling(probe.Scaling{Config: c, Objects: []probe.Object{look(t, c)}, Want: probe.Down, ProtectionSince: time.Unix(100, 0)}).Acts[0]
	}
	ours := take().Record
	another := *c
	another.UID, another.Generation = "another", 9
	foreign := *ours
	foreign.Owner, foreign.Policy = "another", "default/another"
	raise := func(on, said *probe.Record) probe.Act {
		act := take()
		act.Step, act.Object.Record, act.Record = probe.StepScaleUp, on, said
		return act
	}
	stateless := take()
	stateless.Object.ResourceVersion = ""
	for name, test := range map[string]struct {
		config   *probe.Config
		act      probe.Act
		admitted AdmittedProber
		current  error
		leads    bool
		want     error
	}{
		"no admission":                   {c, take(), AdmittedProber{}, nil, true, ErrNotValidated},
		"another config's":               {&another, take(), v, nil, true, ErrNotValidated},
		"one that no longer holds":       {c, take(), v, kube.ErrSuperseded, true, ErrStale},
		"one that can't be confirmed":    {c, take(), v, context.DeadlineExceeded, true, context.DeadlineExceeded},
		"a replica not in charge":        {c, take(), v, nil, false, ErrStale},
		"of no state of the object":      {c, stateless, v, nil, true, ErrNotValidated},
		"up without a record":            {c, raise(nil, ours), v, nil, true, ErrNotValidated},
		"up by another's record":         {c, raise(&foreign, &foreign), v, nil, true, ErrNotValidated},
		"up to more than the record has": {c, raise(ours, &foreign), v, nil, true, ErrNotValidated},
	} {
		t.Run(name, func(t *testing.T) {
			scales := &Scales{Client: api, Current: current{test.current}, Leads: func() bool { return test.leads }}
			if err := scales.Apply(t.Context(), ScaleChange{test.config, "default", test.act}, test.admitted); !errors.Is(err, test.want) || !Certain(err) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("want %v, got %v", test.want, err)
			}
			if o := look(t, c); o.Replicas != 3 || o.Record != nil {
				t.Errorf("it was written: %+v", o)
			}
		})
	}
}

func TestWhatADependentIs(t *testing.T) {
	read := func(apiVersion, kind, name string) probe.Object {
		return (&ScaleReader{Live: api, Client: api}).Read(t.Context(), "default", probe.Ref{APIVersion: apiVersion, Kind: kind, Name: name})
	}
	deployment := dependent(t, "Deployment")
	if o := read("apps/v1", "Deployment", "none"); !o.Missing {
		t.Errorf("one that isn't there: %+v", o)
	}
	config := parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: unscalable, namespace: default}}`)
	if err := api.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]probe.Object{
		"a kind without scale": read("v1", "ConfigMap", "unscalable"), "an unknown kind": read("example.org/v1", "Thing", "x"), "a kind outside of namespaces": read("v1", "Node", "x"),
	} {
		if !o.Unscalable || o.Unread != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	patch := `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true","autohealer.resourcestack.com/original-replicas":"three"}}}`
	if err := api.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	if o := read("apps/v1", "Deployment", "kcm"); !o.Ignore || o.RecordError == "" || o.Record != nil || o.Replicas != 3 || o.Deleting {
		t.Errorf("with annotations: %+v", o)
	}
	patch = `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":null,"dependency-watchdog.gardener.cloud/ignore-scaling":"True"}}}`
	if err := api.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	if o := read("apps/v1", "Deployment", "kcm"); !o.Ignore {
		t.Errorf("annotated for dependency-watchdog: %+v", o)
	}
}
