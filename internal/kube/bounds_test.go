package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// silent is an API server that never answers, answers half, or watches for longer than a request may take.
func silent(t *testing.T) *http.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/silent" {
			_, _ = io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
		}
		if r.URL.Path == "/late" {
			select {
			case <-r.Context().Done():
			case <-time.After(500 * time.Millisecond):
				_, _ = io.WriteString(w, " and done")
			}
			return
		}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	BoundRequests(config, 100*time.Millisecond)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.Transport = to(server.URL, client.Transport)
	return client
}

// to sends requests to a server.
func to(server string, next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		r.URL.Scheme, r.URL.Host = "http", strings.TrimPrefix(server, "http://")
		return next.RoundTrip(r)
	})
}

func ask(ctx context.Context, client *http.Client, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	said, err := io.ReadAll(response.Body)
	return string(said), err
}

func TestEveryRequestEnds(t *testing.T) {
	client := silent(t)
	for name, c := range map[string]struct{ path, says string }{
		"no answer":                 {"/silent", ""},
		"half an answer":            {"/half", "begun"},
		"a watch that never begins": {"/silent?watch=true", ""},
	} {
		said, err := ask(t.Context(), client, c.path)
		if err == nil || !strings.Contains(err.Error(), "the API server doesn't answer within 100ms") || said != c.says {
			t.Errorf("%s: got %q, %v", name, said, err)
		}
	}
	if said, err := ask(t.Context(), client, "/late?watch=true"); said != "begun and done" || err != nil {
		t.Errorf("a watch ends as a request does: %q, %v", said, err)
	}
}

func TestWhoeverAskedMayEndItFirst(t *testing.T) {
	ctx, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	if _, err := ask(ctx, silent(t), "/silent"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
