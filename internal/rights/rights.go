// Package rights asks an API server what accounts may do. It makes a client of its own, which only programs may.
package rights

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

const (
	// rightsKept is for how long a yes is believed. A no is asked anew each time: whoever binds a role and creates a policy next
	// would else be refused for what was so before. With the time for which the guard's verdicts over rights hold, it is
	// less than a minute: so long may one act with a right that was taken away.
	rightsKept = 10 * time.Second
	// answerTakes is how long one question may take; what judges stored policies has no deadline of its own.
	answerTakes = 5 * time.Second
)

// NewAuthorizer tells rules what an account may do: it asks the API server by SubjectAccessReviews. It tries again once
// only, since a review waits for it.
func NewAuthorizer(config *rest.Config) (authorizer.Authorizer, error) {
	config = rest.CopyConfig(config)
	config.Timeout, config.ContentType, config.AcceptContentTypes = answerTakes, runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return undecided{next} })
	client, err := authorizationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of the authorizer: %w", err)
	}
	asking, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client,
		AllowCacheTTL:             rightsKept,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1, Steps: 2},
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make the authorizer: %w", err)
	}
	return asking, nil
}
