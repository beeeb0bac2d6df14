package oracle

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// mostProven is how many kubeconfigs a status tells of. Of those beyond nobody knows from outside whether they ever worked.
const mostProven = 1000

// kubeconfig is what one revision of a Secret says: the mark by which statuses tell its kubeconfig.
type kubeconfig struct {
	name types.NamespacedName
	mark string
}

func (*kubeconfig) Records() []types.UID { return nil }

// trimSecret leaves the mark in place of all that a Secret has.
func trimSecret(secret *unstructured.Unstructured) {
	text, _, _ := unstructured.NestedString(secret.Object, "data", "kubeconfig")
	decoded, _ := base64.StdEncoding.DecodeString(text) // the API server takes nothing else
	sum := sha256.Sum256(decoded)
	secret.Object["data"] = map[string]any{"mark": hex.EncodeToString(sum[:])[:16]}
}

// held is a kubeconfig that a Secret had; until is when another took its place, zero for the latest.
type held struct {
	mark  string
	until time.Time
}

// supplies takes in a Secret.
func (s *dependents) supplies(c Change) bool {
	before, was := c.Before.(*kubeconfig)
	after, is := c.After.(*kubeconfig)
	if was && (!is || before.mark != after.mark) {
		last := s.marks[before.name]
		last[len(last)-1].until = c.At
	}
	if is && (!was || before.mark != after.mark) {
		s.marks[after.name] = append(s.marks[after.name], held{mark: after.mark})
	}
	return was || is
}

// externals are the marks of the kubeconfigs that a config may have been probing a namespace with, from outside, at some moment that
// the manager may have gone by.
func (s *dependents) externals(p *Policy, namespace string, at time.Time) (marks []string) {
	for _, spec := range p.InForce(at, s.options.Lag) {
		is, err := readProber(spec.Object)
		if err != nil {
			continue
		}
		for _, h := range s.marks[types.NamespacedName{Namespace: namespace, Name: is.External}] {
			if h.until.IsZero() || at.Sub(h.until) <= s.options.Lag {
				marks = append(marks, h.mark)
			}
		}
	}
	return marks
}

// untried says whether an act rests on a kubeconfig of which no status had told that it has worked. One that no Secret holds isn't known.
func (s *dependents) untried(w *World, c Change, config types.UID, namespace string) bool {
	p := w.Policies[config]
	if p == nil {
		return false
	}
	marks := s.externals(p, namespace, c.At)
	return len(marks) > 0 && !w.proven.worked(config, namespace, marks, c, s.options.Lag)
}

// proofs are what the statuses of ProbeConfigs tell of kubeconfigs that have worked, one after the other, until now.
type proofs struct {
	now  time.Time
	told map[types.UID][]proof
}

type proof struct {
	version uint64
	at      time.Time
	// marks by namespace.
	marks map[string]string
}

// proofsOf reads them. The replay needs to look ahead: statuses of many configs are written one after the other, and an act may come
// before the status tells what it rests on.
func proofsOf(revisions []revision, now time.Time) proofs {
	all := proofs{now: now, told: map[types.UID][]proof{}}
	for _, r := range revisions {
		object := &unstructured.Unstructured{}
		if r.object == nil || r.resource != (ProbeConfigs{}).Policies() || json.Unmarshal(r.object, &object.Object) != nil {
			continue
		}
		told := proof{version: r.version, at: r.at, marks: map[string]string{}}
		proven, _, _ := unstructured.NestedSlice(object.Object, "status", "provenKubeconfigs")
		for _, one := range proven {
			is, _ := one.(map[string]any)
			namespace, _ := is["namespace"].(string)
			told.marks[namespace], _ = is["mark"].(string)
		}
		all.told[r.uid] = append(all.told[r.uid], told)
	}
	return all
}

// worked says whether a status told that one of the marks had worked: before the act, or by the first status after it that is no longer
// behind. While that one may still come it is too early to tell: the next Check will.
func (all proofs) worked(config types.UID, namespace string, marks []string, c Change, lag time.Duration) bool {
	for _, told := range all.told[config] {
		if len(told.marks) >= mostProven || slices.Contains(marks, told.marks[namespace]) {
			return true
		}
		if told.version > c.Version && told.at.Sub(c.At) > lag {
			return false
		}
	}
	return all.now.Sub(c.At) <= lag
}
