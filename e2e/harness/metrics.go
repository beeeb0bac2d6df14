package harness

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// Scraper gives the token of an account that may read metrics and nothing else.
func (h *Harness) Scraper(ctx context.Context) (token string, err error) {
	const namespace, name = "default", "scraper"
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "autohealer-metrics-reader"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		},
	} {
		if err := client.IgnoreAlreadyExists(h.Client.Create(ctx, o)); err != nil {
			return "", err
		}
	}
	kubeconfig, err := h.ServiceAccountKubeconfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return "", err
	}
	return config.BearerToken, nil
}

// Scrape reads a manager's metrics; without a token it is refused.
func (h *Harness) Scrape(ctx context.Context, name cluster.Component, token string) (string, error) {
	return h.ScrapeOver(ctx, &tls.Config{InsecureSkipVerify: true}, name, token) // made for its Services' names
}

// ScrapeOver is Scrape over TLS with these settings.
func (h *Harness) ScrapeOver(ctx context.Context, over *tls.Config, name cluster.Component, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", h.ports[name].metrics), nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: over}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("read metrics: %s", response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// Goroutines are a manager's, each with its state and its stack.
func (h *Harness) Goroutines(ctx context.Context, name cluster.Component) (stacks []string, err error) {
	text, err := h.Profile(ctx, name, "goroutine?debug=2")
	return strings.Split(strings.TrimSpace(text), "\n\n"), err
}

// Profile reads a profile of a manager, as it is named below /debug/pprof/.
func (h *Harness) Profile(ctx context.Context, name cluster.Component, profile string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.Profiles(name)+profile, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("read profile %s: %s", profile, response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// Profiles is where a manager serves its profiles.
func (h *Harness) Profiles(name cluster.Component) string {
	return fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/", h.ports[name].profiles)
}
