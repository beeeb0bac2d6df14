package health

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Lacks is what the schema of a kind's conditions doesn't have of the fields that not all kinds have. An API server prunes these, so that
// each look would find that they aren't there, and refuses to apply them.
type Lacks struct {
	Codes              bool `json:"codes,omitempty"`
	ObservedGeneration bool `json:"observedGeneration,omitempty"`
	LastUpdateTime     bool `json:"lastUpdateTime,omitempty"`
}

func lacksOf(fields map[string]any) Lacks {
	lacks := func(field string) bool { _, has := fields[field]; return !has }
	return Lacks{Codes: lacks("codes"), ObservedGeneration: lacks("observedGeneration"), LastUpdateTime: lacks("lastUpdateTime")}
}

func (l Lacks) leaveOut(v Verdict) Verdict {
	if l.Codes {
		v.Codes = nil
	}
	return v
}

func (l Lacks) undated(c Condition) Condition {
	if l.LastUpdateTime {
		c.LastUpdate = time.Time{}
	}
	return c
}

func (l Lacks) generation(of *unstructured.Unstructured) int64 {
	if l.ObservedGeneration {
		return 0
	}
	return of.GetGeneration()
}
