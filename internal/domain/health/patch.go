package health

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// operation of a JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

const conditionsPath = "/status/conditions"

// Patch is the JSON Patch that carries the step out on a target; nil where there is nothing to remove.
func (s Step) Patch(target *unstructured.Unstructured) ([]byte, error) {
	if s.Remove {
		return RemovalPatch(target, s.Condition.Type)
	}
	return Patch(target, s.Condition, s.Shape)
}

// Patch is the JSON Patch that puts the condition on a target's status subresource, for any list of conditions; the other
// entries stay as they are, whoever writes them meanwhile. It is guarded: where the target isn't any more as it was seen, in
// what the patch depends on, the API server refuses it, and it has to be made anew from a fresh read.
func Patch(target *unstructured.Unstructured, c Condition, shape Shape) ([]byte, error) {
	entry := c.asMap(shape)
	if i, old := find(target, c.Type); old != nil {
		path := conditionsPath + "/" + strconv.Itoa(i)
		return encode(target, operation{"test", path, old}, operation{"replace", path, entry})
	}
	if list, ok := conditionsOf(target); ok {
		// The whole list: another process may have added an entry of this type.
		return encode(target, operation{"test", conditionsPath, list}, operation{"add", conditionsPath + "/-", entry})
	}
	unchanged := operation{"test", "/metadata/resourceVersion", target.GetResourceVersion()}
	if _, ok := target.Object["status"].(map[string]any); ok {
		return encode(target, unchanged, operation{"add", conditionsPath, []any{entry}})
	}
	return encode(target, unchanged, operation{"add", "/status", map[string]any{"conditions": []any{entry}}})
}

// RemovalPatch is the guarded JSON Patch that removes the condition of that type; nil when there is none.
func RemovalPatch(target *unstructured.Unstructured, conditionType string) ([]byte, error) {
	i, old := find(target, conditionType)
	if old == nil {
		return nil, nil
	}
	path := conditionsPath + "/" + strconv.Itoa(i)
	return encode(target, operation{"test", path, old}, operation{"remove", path, nil})
}

// encode guards the patch further by the target's UID: another object may have its name by now.
func encode(target *unstructured.Unstructured, operations ...operation) ([]byte, error) {
	same := operation{"test", "/metadata/uid", string(target.GetUID())}
	patch, err := json.Marshal(append([]operation{same}, operations...))
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return patch, nil
}

// ApplyObject is what to apply to a target's status subresource, where conditions are a map by type, with a field manager that has
// this one condition and nothing else. The API server refuses it where the target isn't any more as it was seen.
func ApplyObject(target *unstructured.Unstructured, c Condition, shape Shape) *unstructured.Unstructured {
	metadata := map[string]any{"name": target.GetName(), "uid": string(target.GetUID()), "resourceVersion": target.GetResourceVersion()}
	if namespace := target.GetNamespace(); namespace != "" {
		metadata["namespace"] = namespace
	}
	entry := c.asMap(shape)
	if was := Find(target, c.Type); was != nil && len(was.Codes) > 0 && len(c.Codes) == 0 && shape == Gardener {
		entry["codes"] = []any{} // another manager may have them, too, and left out they would stay
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": target.GetAPIVersion(), "kind": target.GetKind(), "metadata": metadata,
		"status": map[string]any{"conditions": []any{entry}},
	}}
}

// OwnedConditions on a target names, with commas between, the condition types that HealthCheckRegistrations decide. It is
// v1alpha1.AnnotationOwnedConditions, which programs that only check in Go need no API package for.
const OwnedConditions = "autohealer.resourcestack.com/owned-conditions"

// Owned are the condition types of a target that its record claims, sorted.
func Owned(target metav1.Object) []string {
	var types []string
	for _, t := range strings.Split(target.GetAnnotations()[OwnedConditions], ",") {
		if t = strings.TrimSpace(t); t != "" {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// Ours says whether a target's condition of that type is Autohealer's: its record claims it, and it is of the form that checks are
// written in. The record alone proves nothing: whoever may annotate the target could claim what others wrote to its status.
func Ours(target *unstructured.Unstructured, conditionType string) bool {
	return Owns(target, conditionType) && Find(target, conditionType).WrittenByChecks()
}

// Owns says whether a target's record claims a condition type.
func Owns(target *unstructured.Unstructured, conditionType string) bool {
	return slices.Contains(Owned(target), conditionType)
}

// Claim is the record with a condition type added, or taken away.
func Claim(target *unstructured.Unstructured, conditionType string, owned bool) string {
	types := slices.DeleteFunc(Owned(target), func(t string) bool { return t == conditionType })
	if owned {
		types = append(types, conditionType)
	}
	slices.Sort(types)
	return strings.Join(types, ",")
}

// WriteConflicts keeps conditions from being written by turns without end, where others write them, too: ours is put right at once, and then less and
// less. The zero value knows of none, and is ready. It is safe for concurrent use.
type WriteConflicts struct {
	mu       sync.Mutex
	byTarget map[string]targetWrites // by target; needs mu
}

// targetWrites is what was written to a target of that UID, by condition type.
type targetWrites struct {
	uid    types.UID
	byType map[string]conditionWrite
}

// conditionWrite is about one condition of a target.
type conditionWrite struct {
	// hash tells what was written last, with this status, at that time.
	hash   uint64
	status Status
	at     time.Time
	// rounds is how often in a row something else was there by then.
	rounds int
}

const (
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
	// minReported is for how long a write conflict is reported at least: others write every half minute, or so.
	minReported = 2 * time.Minute
)

func (c conditionWrite) backoff() time.Duration {
	if c.rounds == 0 {
		return 0
	}
	return min(minBackoff<<min(c.rounds-1, 20), maxBackoff)
}

// Check is asked at each evaluation, also where nothing is to be written. It says of a condition that is to be written in the place of what was found whether that rewrites what we had written already, with the same
// status, and somebody else replaced; and until when it isn't to be written therefore, zero when it may be now. Nil is none, on either side.
func (c *WriteConflicts) Check(target string, uid types.UID, conditionType string, found, next *Condition, now time.Time) (rewrites bool, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.last(target, uid, conditionType)
	switch is := found.hash(); {
	case !known || last.hash == is:
		return false, time.Time{}
	case is == next.hash(): // whoever wrote it, an answer to us may have been lost
		c.byTarget[target].byType[conditionType] = conditionWrite{hash: is, status: found.status(), at: now}
		return false, time.Time{}
	case last.status != next.status():
		return false, time.Time{}
	}
	if until = last.at.Add(last.backoff()); now.Before(until) {
		return true, until
	}
	return true, time.Time{}
}

// last needs c.mu.
func (c *WriteConflicts) last(target string, uid types.UID, conditionType string) (last conditionWrite, known bool) {
	if of := c.byTarget[target]; of.uid == uid {
		last, known = of.byType[conditionType]
	}
	return last, known
}

// RecordWrite takes in a condition that was written in the place of what was found, and says whether somebody else had written that. Nil is none.
func (c *WriteConflicts) RecordWrite(target string, uid types.UID, conditionType string, found, next *Condition, now time.Time) (contested bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := conditionWrite{hash: next.hash(), status: next.status(), at: now}
	if before, known := c.last(target, uid, conditionType); known && before.hash != found.hash() {
		after.rounds = before.rounds + 1
	}
	if c.byTarget == nil {
		c.byTarget = map[string]targetWrites{}
	}
	if of := c.byTarget[target]; of.byType == nil || of.uid != uid {
		c.byTarget[target] = targetWrites{uid, map[string]conditionWrite{}}
	}
	c.byTarget[target].byType[conditionType] = after
	return after.rounds > 0
}

// Persistent gives a condition type of the target that somebody else writes again and again, the first by name, and until when that counts if
// nothing is written from now on; "" where there is none.
func (c *WriteConflicts) Persistent(target string, uid types.UID, now time.Time) (conditionType string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.byTarget[target]
	if of.uid != uid {
		return "", time.Time{}
	}
	for _, conditionType := range slices.Sorted(maps.Keys(of.byType)) {
		last := of.byType[conditionType]
		if until := last.at.Add(max(2*last.backoff(), minReported)); last.rounds > 1 && now.Before(until) {
			return conditionType, until
		}
	}
	return "", time.Time{}
}

// Forget a target that is gone.
func (c *WriteConflicts) Forget(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byTarget, target)
}

var seed = maphash.MakeSeed()

// hash of what a condition says.
func (c *Condition) hash() uint64 {
	if c == nil {
		return 0
	}
	return maphash.String(seed, strings.Join(append([]string{string(c.Status), c.Reason, c.Message}, c.Codes...), "\x00"))
}
