package actuate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
)

// Act is one change of an object that isn't ours, for the audit trail.
type Act struct {
	// Verb and Reason are what was done and why, as the kind's planner names them.
	Verb, Reason string
	// Policy is for whom. RuleSet admitted its generation; "" for an undo, which needs no admission.
	PolicyKind       string
	Policy           types.NamespacedName
	PolicyUID        types.UID
	PolicyGeneration int64
	RuleSet          string
	// Target is what was changed. Part says what of it, where one policy may change several things there: the taint that it gives, by key and effect.
	TargetKind string
	Target     types.NamespacedName
	TargetUID  types.UID
	Part       string
	// Trigger is the transition that the act answers.
	Trigger time.Time
	// Unconfirmed is what came instead of the API server's answer, so that the change may have been made or not. Nil: it was.
	Unconfirmed error
}

// ID names an act: the same policy, generation, target and trigger never act twice.
func (a Act) ID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%s/%s/%s/%d", a.PolicyUID, a.PolicyGeneration, a.TargetUID, a.Part, a.Verb, a.Trigger.Unix()))
	return hex.EncodeToString(sum[:8])
}

// record writes the audit line of an act; details are keys and values that the kind adds. Events expire and can be
// dropped; this is what remains.
func (a Act) record(trail logr.Logger, message string, details ...any) {
	line := []any{"act", a.ID(), "verb", a.Verb, "reason", a.Reason, "policyKind", a.PolicyKind}
	if a.Policy.Namespace != "" {
		line = append(line, "policyNamespace", a.Policy.Namespace)
	}
	line = append(line, "policy", a.Policy.Name, "policyUID", a.PolicyUID, "policyGeneration", a.PolicyGeneration, "ruleSet", a.RuleSet,
		"targetKind", a.TargetKind)
	if a.Target.Namespace != "" {
		line = append(line, "targetNamespace", a.Target.Namespace)
	}
	line = append(line, "target", a.Target.Name, "targetUID", a.TargetUID)
	line = append(line, details...)
	if a.Unconfirmed != nil {
		line = append(line, "unconfirmed", a.Unconfirmed.Error())
	}
	trail.Info(message, append(line, "trigger", a.Trigger)...)
}
