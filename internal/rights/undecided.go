package rights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

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
		return nil, fmt.Errorf("the API server can't tell: %s", strings.TrimSpace(s.EvaluationError))
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
