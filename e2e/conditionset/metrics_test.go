package conditionset

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
)

// metricsAddress is where the manager serves metrics.
var metricsAddress string

func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }() // free from now on
	return listener.Addr().String()
}

// scraper gives the token of an account that may read metrics.
func scraper(ctx context.Context) string {
	GinkgoHelper()
	for _, args := range [][]string{
		{"create", "serviceaccount", "scraper", "-n", "default"},
		{"create", "clusterrolebinding", "scraper", "--clusterrole=autohealer-metrics-reader", "--serviceaccount=default:scraper"},
	} {
		_, err := w.Kubectl(ctx, args...)
		Expect(err).NotTo(HaveOccurred())
	}
	kubeconfig, err := w.ServiceAccountKubeconfig(ctx, "default", "scraper")
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	return config.BearerToken
}

// scrape reads the manager's metrics; without a token it is refused.
func scrape(ctx context.Context, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+metricsAddress+"/metrics", nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // made for its Services' names
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
