package oracle

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// ejections are what a policy's status tells of whom Envoys have ejected.
type ejections struct {
	Ejected   *int64
	Ejections []struct{}
	Ancestors []struct {
		AncestorRef struct{ Kind string }
		Clusters    int64
		Ejected     *int64
	}
	Conditions []metav1.Condition

	// knownUntil is when it last told a number and then didn't any more; zero for never.
	knownUntil time.Time
}

// unknown says whether it tells that nobody knows.
func (e *ejections) unknown() bool {
	return slices.ContainsFunc(e.Conditions, func(c metav1.Condition) bool { return c.Type == "EjectionsUnknown" && c.Status == metav1.ConditionTrue })
}

// claims says whether it tells a number, or names somebody.
func (e *ejections) claims() bool {
	claims := e.Ejected != nil || len(e.Ejections) > 0
	for _, a := range e.Ancestors {
		claims = claims || a.Ejected != nil
	}
	return claims
}

// unasked says whether the policy holds for clusters of Gateways, whose proxies nobody asks.
func (e *ejections) unasked() bool {
	for _, a := range e.Ancestors {
		if a.AncestorRef.Kind == "Gateway" && a.Clusters > 0 {
			return true
		}
	}
	return false
}

// Note takes in what a policy's status tells: nobody is said to be ejected, or not to be, of whom that isn't known.
func (s *detectors) Note(at time.Time, uid types.UID, p *Policy) (found []Broken) {
	before, now := s.ejections[uid], ejections{}
	encoded, err := json.Marshal(p.Latest.Object["status"])
	if err == nil {
		err = json.Unmarshal(encoded, &now)
	}
	if err != nil {
		return []Broken{{Blind, fmt.Sprintf("its status can't be read: %v", err)}}
	}
	now.knownUntil = before.knownUntil
	if before.Ejected != nil && now.Ejected == nil {
		now.knownUntil = at
	}
	s.ejections[uid] = now
	doubt := func(text string) { found = append(found, Broken{Doubt, text}) }
	if now.claims() && now.unknown() {
		doubt("the status tells whom Envoys have ejected, and that it isn't known")
	}
	if now.claims() && now.Ejected == nil {
		doubt("the status tells of some targets how many of their hosts are ejected, and of all of them not")
	}
	// What was told before stands while it is being found out.
	if now.Ejected != nil && now.unasked() && !reflect.DeepEqual(before.Ejected, now.Ejected) {
		doubt(fmt.Sprintf("the status tells that %d hosts are ejected, and it holds for a Gateway, whose proxies aren't asked", ptr.Deref(now.Ejected, 0)))
	}
	return found
}

// tells judges an Event about ejections: what it tells the status tells too, or did just now.
func (s *detectors) tells(c Change, e *ejectionTold) Finding {
	is := s.ejections[e.policy]
	if is.Ejected != nil || !is.knownUntil.IsZero() && c.At.Sub(is.knownUntil) <= s.options.Lag {
		return Finding{}
	}
	return broken(Doubt, "the manager told %s, and by the policy's status it isn't known who is ejected", e.reason)
}
