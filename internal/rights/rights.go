// Package rights asks an API server what accounts may do. It makes a client of its own, which only programs may.
package rights

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
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
	client, err := authorizationv1client.NewForConfig(config)
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

const (
	// tokensKept is for how long an API server's word on a token holds, yes or no, and readersKept on who may read metrics.
	tokensKept, unknownKept, readersKept, othersKept = time.Minute, 10 * time.Second, 5 * time.Minute, 30 * time.Second
	// longestToken is several times what an API server makes, and askingAtOnce how many tokens it is asked about at a time.
	longestToken, askingAtOnce = 16 << 10, 4
	// logInterval is how often at most it is logged that an API server can't be asked: whoever wants metrics decides how often it is.
	logInterval = 10 * time.Second
)

// OfMetrics lets those read metrics whom the API server knows and who may: others get 401, 403, and 503 while it can't be asked. It
// is for a metrics server's FilterProvider. controller-runtime's own asks about a token that is unknown each time, and takes the no
// for an error, which it logs.
func OfMetrics(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	reviews, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("make the client that asks who reads metrics: %w", err)
	}
	accesses, err := authorizationv1client.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("make the client that asks who may read metrics: %w", err)
	}
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: accesses, AllowCacheTTL: readersKept, DenyCacheTTL: othersKept,
		WebhookRetryBackoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1, Steps: 2},
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make the authorizer of metrics: %w", err)
	}
	known := cache.New(tokens{reviews.TokenReviews(), semaphore.NewWeighted(askingAtOnce)}, false, tokensKept, unknownKept)
	return (&readers{known: known, may: may, logged: rate.Sometimes{Interval: logInterval}}).filter, nil
}

// tokens asks an API server whose a token is.
type tokens struct {
	authenticationclient.TokenReviewInterface

	asking *semaphore.Weighted
}

// AuthenticateToken asks.
func (t tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTakes)
	defer cancel()
	if err := t.asking.Acquire(ctx, 1); err != nil {
		return nil, false, err
	}
	defer t.asking.Release(1)
	review, err := t.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		return nil, false, err
	}
	who := review.Status.User
	extra := map[string][]string{}
	for key, values := range who.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}}, true, nil
}

// readers are those who may read metrics.
type readers struct {
	known  authenticator.Token
	may    authorizer.Authorizer
	logged rate.Sometimes
}

func (a *readers) filter(log logr.Logger, handler http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch code, why, err := a.judge(r); {
		case err != nil:
			a.logged.Do(func() { log.Error(err, "Can't ask the API server who may read metrics") })
			http.Error(w, "The API server can't be asked who may read metrics", http.StatusServiceUnavailable)
		case code != http.StatusOK:
			http.Error(w, why, code)
		default:
			handler.ServeHTTP(w, r)
		}
	}), nil
}

func (a *readers) judge(r *http.Request) (code int, why string, err error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > longestToken {
		return http.StatusUnauthorized, "Unauthorized: send the bearer token of a service account", nil
	}
	who, known, err := a.known.AuthenticateToken(r.Context(), token)
	if err != nil || !known {
		return http.StatusUnauthorized, "Unauthorized: the API server doesn't know this token", err
	}
	decision, _, err := a.may.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path})
	if err != nil || decision != authorizer.DecisionAllow {
		return http.StatusForbidden, who.User.GetName() + " may not get " + r.URL.Path + ": bind it to the ClusterRole autohealer-metrics-reader", err
	}
	return http.StatusOK, "", nil
}

// undecided makes an error of an answer that isn't one: where none of the API server's authorizers allows and one of them
// failed, it says allowed: false with an evaluationError, which the library that asks doesn't look at.
type undecided struct{ http.RoundTripper }

// RoundTrip asks.
func (u undecided) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := u.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode >= http.StatusMultipleChoices {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read a SubjectAccessReview: %w", err)
	}
	var review authorizationv1.SubjectAccessReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("read a SubjectAccessReview: %w", err)
	}
	if s := review.Status; !s.Allowed && !s.Denied && s.EvaluationError != "" {
		return nil, fmt.Errorf("the API server doesn't know: %s", strings.TrimSpace(s.EvaluationError))
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
