package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/celerrors"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// reasons say what is missing.
var reasons = map[Missing]string{
	MissingFacts:      "Autohealer hasn't read all of the cluster yet",
	MissingAuthorizer: "nothing here can say what an account may do",
	MissingRequest:    "the user who asks isn't known",
}

const (
	// rightsTTL is for how long a verdict over what an account may do holds. An answer may be some seconds old already; both
	// together are less than a minute.
	rightsTTL = 45 * time.Second
	// recheckDelay is after how long an account's rights are asked for anew when there was no answer.
	recheckDelay = 10 * time.Second
)

// judge gives the rule's violation or skip; both nil when the object passes.
func (e *evaluation) judge(r *compiledRule) (*Violation, *Skip) {
	if skip := e.unavailable(r); skip != nil {
		if e.onlyWatched(r) {
			skip.warn()
		}
		return nil, skip
	}
	e.unanswered = nil
	passes, err := e.holds(r.condition)
	if e.unanswered != nil { // whatever the rule made of it
		err = e.unanswered
		e.noteRecheck(e.now.Add(recheckDelay))
	}
	switch {
	case err == nil && passes:
		return nil, nil
	case errors.Is(err, ErrNotKnown):
		return nil, &Skip{Rule: r.ID, Severity: r.OnFactsUnavailable, Reason: oneLine(err.Error()), Missing: MissingFacts}
	}
	if err == nil {
		err = e.ctx.Err() // what it asked for may have been cut short, and so may its message
	}
	v := &Violation{Rule: r.ID, Severity: r.Severity, Docs: r.docs()}
	e.soften(v, r)
	if err != nil {
		return nil, &Skip{Rule: r.ID, Severity: v.Severity, Reason: e.failure(r, e.inability(err)), transient: e.transient(err)}
	}
	if v.Severity == Deny && r.Exceptable {
		e.readExceptions()
	}
	if v.lifted = e.lift(r); v.lifted != nil {
		v.Severity = Warn
		e.noteRecheck(v.lifted.Until)
	}
	v.Message = e.message(r)
	return v, nil
}

// transient: what the rule asked for got no answer in time, or one that says to ask again.
func (e *evaluation) transient(err error) bool {
	_, later := apierrors.SuggestsClientDelay(err)
	return later || e.unanswered != nil || e.ctx.Err() != nil
}

// failure says why a rule's expression failed. That doesn't tell an object's author what a Guardrail wants of it; what is short of time,
// budget or an answer is nobody's mistake.
func (e *evaluation) failure(r *compiledRule, err error) string {
	why := celerrors.OfEvaluation(err.Error(), "the rule", "the object has no %s, which the rule reads: write it, or have the rule ask by has() or .? whether it is there")
	if r.guardrail == "" || r.Rationale == "" || e.unanswered != nil || e.ctx.Err() != nil || errors.Is(err, errBudget) {
		return why
	}
	return why + "; the rule is there because: " + oneLine(r.Rationale)
}

// unavailable says why a rule can't be evaluated, nil when it can.
func (e *evaluation) unavailable(r *compiledRule) *Skip {
	switch {
	case r.fault != nil:
		return &Skip{Rule: r.ID, Severity: r.Severity, Reason: r.broken()}
	case r.live && !e.liveAvailable(), r.usesFacts && !e.factsKnown():
		return &Skip{Rule: r.ID, Severity: r.OnFactsUnavailable, Reason: reasons[MissingFacts], Missing: MissingFacts}
	case r.asksWho && !e.hasRequester():
		return &Skip{Rule: r.ID, Severity: r.Severity, Reason: reasons[MissingRequest], Missing: MissingRequest}
	case r.condition.asks && e.authorizer == nil:
		return &Skip{Rule: r.ID, Severity: r.Severity, Reason: reasons[MissingAuthorizer], Missing: MissingAuthorizer}
	}
	return nil
}

// hasRequester says whether the request is somebody's. An API server always says whose; a file is nobody's.
func (e *evaluation) hasRequester() bool {
	return e.request != nil && e.request.UserInfo.Username != ""
}

// docs is where one reads about a rule.
func (r *compiledRule) docs() string {
	if r.guardrail != "" {
		return "Guardrail " + r.guardrail
	}
	return Docs(r.ID)
}

// soften makes a warning of what need not be refused.
func (e *evaluation) soften(v *Violation, r *compiledRule) {
	switch {
	case v.Severity != Deny:
	case e.leavesUnchanged(r):
		v.Severity, v.Unchanged, v.noWorse = Warn, true, r.RatchetWhen != ""
	case e.onlyWatched(r):
		v.Severity, v.Observing = Warn, true
	}
}

// onlyWatched: the rule denies what would be done, and the object does nothing while it observes.
func (e *evaluation) onlyWatched(r *compiledRule) bool {
	return r.WhileObserving == Warn && observes(e.object.content)
}

// observes says whether a policy is in mode Observe.
func observes(object map[string]any) bool {
	mode, _ := specOf(object)["mode"].(string)
	return mode == string(v1alpha1.Observe)
}

// leavesUnchanged: the update touches nothing that the rule reads, so the stored object gives the same verdict; or the rule can tell
// that it makes nothing worse. A rule that isn't
// asked at run time also wants to know that the stored object may act: if not, the update may be what lets it.
func (e *evaluation) leavesUnchanged(r *compiledRule) bool {
	if r.unchanged == nil || e.oldObject.content == nil {
		return false
	}
	unchanged, err := e.holds(*r.unchanged)
	return err == nil && unchanged && (r.atRunTime || e.storedMayAct())
}

// storedMayAct says whether the rules that hold at run time admit the stored object. Where nobody can be asked about rights,
// as in a tool without a cluster, the others decide.
func (e *evaluation) storedMayAct() bool {
	if e.oldActs == nil {
		old := e.guard.evaluation(e.ctx, e.rules, e.kind, e.oldObject)
		old.exceptions, old.facts, old.authorizer = e.exceptions, e.facts, e.authorizer
		v := old.atRunTime()
		refuses := func(violation Violation) bool { return violation.Severity == Deny }
		leavesOut := func(s Skip) bool { return s.Severity == Deny && s.Missing != MissingAuthorizer }
		e.oldActs = new(!slices.ContainsFunc(v.Violations, refuses) && !slices.ContainsFunc(v.Skipped, leavesOut))
	}
	return *e.oldActs
}

// atAdmission judges by all rules.
func (e *evaluation) atAdmission() Verdict {
	return e.verdict(func(*compiledRule) bool { return true })
}

// atRunTime judges by the rules over the object itself.
func (e *evaluation) atRunTime() Verdict {
	v := e.verdict(func(r *compiledRule) bool { return r.atRunTime })
	v.RecheckAt = e.recheckAt
	return v
}

// verdict judges by each of these rules; a refusal names them all.
func (e *evaluation) verdict(applies func(*compiledRule) bool) Verdict {
	v := Verdict{Allowed: true, RuleSetHash: e.kind.hash}
	if e.rules.unread && acts(e.kind.name) && e.exempt != allRules {
		v.skip(Skip{Rule: "guard/guardrails", Severity: Deny, Reason: "the Guardrails aren't read yet; try again in a moment", transient: true})
	}
	for _, r := range e.kind.rules {
		if applies(r) {
			e.add(&v, r)
		}
	}
	e.refill()
	for _, r := range e.kind.own {
		if applies(r) && !e.isOf(r.guardrail) {
			e.add(&v, r)
		}
	}
	return v
}

func (e *evaluation) add(v *Verdict, r *compiledRule) {
	violation, skip := e.judge(r)
	if e.mustAdmit(r) {
		violation.warn()
		skip.warn()
	}
	if skip != nil {
		skip.Docs = r.docs()
		v.skip(*skip)
	}
	if violation == nil {
		return
	}
	v.Violations = append(v.Violations, *violation)
	v.Allowed = v.Allowed && violation.Severity != Deny
	if violation.lifted != nil {
		v.Lifted = append(v.Lifted, *violation.lifted)
	}
}

func (v *Violation) warn() {
	if v != nil {
		v.Severity = Warn
	}
}

func (s *Skip) warn() {
	if s != nil {
		s.Severity = Warn
	}
}

func (v *Verdict) skip(s Skip) {
	v.Skipped = append(v.Skipped, s)
	v.Allowed = v.Allowed && s.Severity != Deny
}

// isOf says whether the object is the Guardrail whose rule this is. A rule over Guardrails that is a mistake must not keep
// its author from repairing it.
func (e *evaluation) isOf(guardrail string) bool {
	return e.kind.name == kindGuardrail && targetOf(kindGuardrail, e.object.content).Name == guardrail
}

// acts says whether objects of a kind make something happen. Guardrails and exceptions only rule over those.
func acts(kind string) bool {
	k := kinds.Named(kind)
	return k == nil || !k.RulesOver
}

// askAuthorizer gives CEL what answers for the requester, and for service accounts. At run time nobody requests: only
// rules that ask for service accounts are evaluated then.
func (e *evaluation) askAuthorizer() any {
	requester := &user.DefaultInfo{}
	if e.request != nil {
		requester = userOf(e.request.UserInfo)
	}
	return library.NewAuthorizerVal(requester, deadlineAuthorizer{e, e.authorizer})
}

func userOf(info authenticationv1.UserInfo) *user.DefaultInfo {
	extra := make(map[string][]string, len(info.Extra))
	for key, values := range info.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: extra}
}

// deadlineAuthorizer asks within the request's deadline, of which CEL's library doesn't know, and notes that it asked, since rights change
// without an event of ours, and a question that got no answer: to an expression that looks like a no.
type deadlineAuthorizer struct {
	authorizer *evaluation
	authorizer.UnconditionalAuthorizer
}

// Authorize asks within the request's deadline.
func (t deadlineAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	t.authorizer.noteRecheck(t.authorizer.now.Add(rightsTTL))
	decision, reason, err := t.UnconditionalAuthorizer.Authorize(t.authorizer.ctx, a) //nolint:contextcheck // the context that CEL gives is empty
	if err != nil {
		t.authorizer.unanswered = fmt.Errorf("ask what %s may do: %w", a.GetUser().GetName(), err)
	}
	return decision, reason, err
}
