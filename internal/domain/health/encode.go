package health

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// object is the condition as JSON has it. Codes, observedGeneration and lastUpdateTime are there only when they say something.
func (c *Condition) object(shape Shape) map[string]any {
	o := map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": c.LastTransition.UTC().Format(time.RFC3339),
	}
	if shape == Conditions {
		if c.ObservedGeneration > 0 {
			o["observedGeneration"] = c.ObservedGeneration
		}
		return o
	}
	if !c.LastUpdate.IsZero() {
		o["lastUpdateTime"] = c.LastUpdate.UTC().Format(time.RFC3339)
	}
	if len(c.Codes) > 0 {
		codes := make([]any, len(c.Codes))
		for i, code := range c.Codes {
			codes[i] = code
		}
		o["codes"] = codes
	}
	return o
}

// Find gives the condition of that type on a target, nil when there is none.
func Find(target *unstructured.Unstructured, conditionType string) *Condition {
	_, entry := find(target, conditionType)
	if entry == nil {
		return nil
	}
	c := &Condition{
		Type: conditionType, Status: Status(text(entry, "status")), Reason: text(entry, "reason"), Message: text(entry, "message"),
		LastTransition: moment(entry, "lastTransitionTime"), LastUpdate: moment(entry, "lastUpdateTime"),
	}
	c.ObservedGeneration, _, _ = unstructured.NestedInt64(entry, "observedGeneration")
	c.Codes, _, _ = unstructured.NestedStringSlice(entry, "codes")
	return c
}

// find gives the place and the first entry of that type in status.conditions; -1 and nil when there is none.
func find(target *unstructured.Unstructured, conditionType string) (int, map[string]any) {
	list, _ := conditionsOf(target)
	for i, item := range list {
		if entry, ok := item.(map[string]any); ok && text(entry, "type") == conditionType {
			return i, entry
		}
	}
	return -1, nil
}

// conditionsOf is status.conditions as it is, and whether it is a list at all.
func conditionsOf(target *unstructured.Unstructured) ([]any, bool) {
	value, _, err := unstructured.NestedFieldNoCopy(target.Object, "status", "conditions")
	if err != nil {
		return nil, false
	}
	list, ok := value.([]any)
	return list, ok
}

func text(entry map[string]any, field string) string {
	value, _, _ := unstructured.NestedString(entry, field)
	return value
}

func moment(entry map[string]any, field string) time.Time {
	at, err := time.Parse(time.RFC3339, text(entry, field))
	if err != nil {
		return time.Time{}
	}
	return at
}
