package guard

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"
)

// askAuthorizer gives CEL what answers for the requester, and for service accounts. At run time nobody requests: only
// rules that ask for service accounts are evaluated then.
func (e *evaluation) askAuthorizer() any {
	requester := &user.DefaultInfo{}
	if e.request != nil {
		requester = userOf(e.request.UserInfo)
	}
	return library.NewAuthorizerVal(requester, timely{e, e.authorizer})
}

func userOf(info authenticationv1.UserInfo) *user.DefaultInfo {
	extra := make(map[string][]string, len(info.Extra))
	for key, values := range info.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: extra}
}

// timely asks within the request's deadline, of which CEL's library doesn't know, and notes that it asked, since rights change
// without an event of ours, and a question that got no answer: to an expression that looks like a no.
type timely struct {
	of *evaluation
	authorizer.UnconditionalAuthorizer
}

// Authorize asks within the request's deadline.
func (t timely) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	t.of.lookAgain(t.of.now.Add(rightsHold))
	decision, reason, err := t.UnconditionalAuthorizer.Authorize(t.of.ctx, a) //nolint:contextcheck // the context that CEL gives is empty
	if err != nil {
		t.of.unanswered = fmt.Errorf("ask what %s may do: %w", a.GetUser().GetName(), err)
	}
	return decision, reason, err
}

// answer says the same to every question, for rules' tests.
type answer authorizer.Decision

// Authorize gives the answer.
func (a answer) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.Decision(a), "", nil
}
