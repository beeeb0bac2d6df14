package snapshot

import (
	"bytes"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// PolicyOf is what Guardrails say, as the planner of ConditionSets reads it.
var PolicyOf = policyOf

// Of is a cluster with nothing but these objects, as it is read from the file of it.
func Of(t interface{ Fatal(why ...any) }, taken, server time.Time, objects ...client.Object) *Snapshot {
	s := &Snapshot{Objects: newObjects(), TakenAt: metav1.NewTime(taken), ServerTime: metav1.NewTime(server)}
	for i := range resources {
		s.Objects.answer(resources[i].lists())
	}
	for _, object := range objects {
		kind, err := apiutil.GVKForObject(object, known)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		one := &unstructured.Unstructured{Object: raw}
		one.SetGroupVersionKind(kind)
		if err := s.Objects.store(one); err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	if err := s.Write(&file); err != nil {
		t.Fatal(err)
	}
	read, err := Read(file.Bytes())
	if err != nil {
		t.Fatal(err, file.String())
	}
	return read
}

// Answers takes in what else was asked for.
func (s *Snapshot) Answers(query ...string) { s.Objects.answered.Insert(query...) }
