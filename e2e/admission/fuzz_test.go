package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	fuzzRounds  = 1600
	fuzzClients = 4
	// fuzzSeed is fixed: a failure is reproduced by running the spec again.
	fuzzSeed = 20240614
)

// dangerousReview is what the API server would send for OutOfDisk: false with NoExecute.
const dangerousReview = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{
"uid":"b9c5c1f6-6a43-4c4f-9f3a-0d6a8f4f8b11","kind":{"group":"autohealer.resourcestack.com","version":"v1alpha1","kind":"ConditionSet"},
"resource":{"group":"autohealer.resourcestack.com","version":"v1alpha1","resource":"conditionsets"},
"requestKind":{"group":"autohealer.resourcestack.com","version":"v1alpha1","kind":"ConditionSet"},
"name":"fuzz","operation":"CREATE","userInfo":{"username":"admin","groups":["system:masters"]},
"object":{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ConditionSet","metadata":{"name":"fuzz","uid":"a","generation":1},
"spec":{"type":"Fuzz","effect":"NoExecute","taintKey":"example.com/fuzz","conditions":{"OutOfDisk":{"status":false}},"for":"5m","maxNodes":"5%",
"nodeSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"In","values":["d"]}]}}},
"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`

var _ = Describe("Garbage posted straight to the webhook", func() {
	var endpoint *endpoint
	var before string
	BeforeEach(func(ctx SpecContext) { endpoint, before = webhookEndpoint(ctx), pid() }, NodeTimeout(specTime))
	AfterEach(func(ctx SpecContext) {
		Expect(pid()).To(Equal(before), "the manager never died")
		Expect(h.Ready(ctx, harness.Manager)).To(Succeed())
		answer, _, err := endpoint.post(ctx, []byte(dangerousReview))
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.Allowed).To(BeFalse())
		Expect(answer.Result.Message).To(HavePrefix("conditionset/matches-healthy-nodes: "), "it still judges")
	}, NodeTimeout(specTime))

	It("never makes it admit a dangerous set, whatever stands around the spec", func(ctx SpecContext) {
		fuzz(ctx, endpoint, func(random *rand.Rand) ([]byte, func(*admissionv1.AdmissionResponse) error) {
			review := mutated(random, dangerousReview, func(path string) bool {
				return path == "/request/operation" || strings.HasPrefix("/request/object/spec", path) || strings.HasPrefix(path, "/request/object/spec")
			})
			return review, func(answer *admissionv1.AdmissionResponse) error {
				if answer.Allowed {
					return errors.New("admitted")
				}
				return nil
			}
		})
	}, NodeTimeout(specTime))

	It("is answered, whatever it is", func(ctx SpecContext) {
		update := strings.Replace(dangerousReview, `"oldObject":null`, `"oldObject":`+string(encoded(decoded(dangerousReview)["request"].(map[string]any)["object"])), 1)
		update = strings.Replace(update, `"operation":"CREATE"`, `"operation":"UPDATE"`, 1)
		update = strings.Replace(update, `"for":"5m"`, `"for":"6m"`, 1)
		fuzz(ctx, endpoint, func(random *rand.Rand) ([]byte, func(*admissionv1.AdmissionResponse) error) {
			text := []string{dangerousReview, update}[random.IntN(2)]
			review := mutated(random, text, func(string) bool { return false })
			if random.IntN(8) == 0 {
				review = damaged(random, review)
			}
			return review, func(*admissionv1.AdmissionResponse) error { return nil }
		})
	}, NodeTimeout(specTime))

	It("is refused with an error when it is no JSON, no review, or too much", func(ctx SpecContext) {
		random := rand.New(rand.NewPCG(fuzzSeed, 1))
		for name, body := range map[string][]byte{
			"nothing": {}, "null": []byte("null"), "an empty object": []byte("{}"), "an empty list": []byte("[]"), "a pod": []byte(`{"kind":"Pod","apiVersion":"v1"}`),
			"half a review": []byte(dangerousReview[:len(dangerousReview)/2]), "noise": noise(random, 4096), "zeros": make([]byte, 4096),
			"no request": []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`), "an empty request": []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{}}`),
			"deep nesting": []byte(strings.Repeat(`{"request":`, 50_000) + "1" + strings.Repeat("}", 50_000)),
			"deep lists":   []byte(strings.Replace(dangerousReview, `"oldObject":null`, `"oldObject":{"kind":"ConditionSet","spec":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+"}", 1)),
			"8 MiB":        []byte(strings.Replace(dangerousReview, `"name":"fuzz"`, `"name":"`+long(8<<20)+`"`, 1)),
			"another kind": []byte(strings.ReplaceAll(dangerousReview, `"kind":"ConditionSet"`, `"kind":"Pod"`)),
			"no operation": []byte(strings.Replace(dangerousReview, `"operation":"CREATE",`, ``, 1)),
			"no object":    []byte(strings.Replace(dangerousReview, `"object":`, `"subject":`, 1)),
		} {
			answer, code, err := endpoint.post(ctx, body)
			Expect(err).NotTo(HaveOccurred(), name)
			Expect(code).To(BeNumerically("<", 500), "%s is the sender's mistake, not ours", name)
			Expect(answer.Allowed).To(BeFalse(), name)
			if code == http.StatusOK {
				Expect(answer.Result).NotTo(BeNil(), name)
				Expect(answer.Result.Message).NotTo(BeEmpty(), name)
				Expect(answer.Result.Message).NotTo(ContainSubstring("panic"), name)
			}
		}
	}, NodeTimeout(specTime))

	It("doesn't harm by other methods, types and query strings", func(ctx SpecContext) {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodOptions, "BREW"} {
			_, code, err := endpoint.send(ctx, method, "", "application/json", nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(BeNumerically("<", 500), method)
		}
		for _, query := range []string{"?timeout=", "?timeout=-1s", "?timeout=0s", "?timeout=999h", "?timeout=%00", "?timeout=1e9", "?" + long(8000)} {
			answer, code, err := endpoint.send(ctx, http.MethodPost, query, "application/json", []byte(dangerousReview))
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(Equal(http.StatusOK), query)
			Expect(answer.Allowed).To(BeFalse(), query)
			Expect(answer.Result.Message).To(HavePrefix("conditionset/matches-healthy-nodes: "), query)
		}
		for _, contentType := range []string{"", "text/plain", "application/yaml", "application/vnd.kubernetes.protobuf"} {
			answer, code, err := endpoint.send(ctx, http.MethodPost, "", contentType, []byte(dangerousReview))
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(BeNumerically("<", 500), contentType)
			Expect(answer.Allowed).To(BeFalse(), contentType)
		}
	}, NodeTimeout(specTime))
})

// endpoint is the webhook as the API server calls it.
type endpoint struct {
	url    string
	client *http.Client
}

func webhookEndpoint(ctx context.Context) *endpoint {
	GinkgoHelper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(h.Client.Get(ctx, types.NamespacedName{Name: "autohealer"}, config)).To(Succeed())
	authorities := x509.NewCertPool()
	Expect(authorities.AppendCertsFromPEM(config.Webhooks[0].ClientConfig.CABundle)).To(BeTrue(), "the manager has published its CA")
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: fuzzClients}
	DeferCleanup(transport.CloseIdleConnections)
	return &endpoint{url: *config.Webhooks[0].ClientConfig.URL, client: &http.Client{Transport: transport, Timeout: 20 * time.Second}}
}

func (e *endpoint) post(ctx context.Context, body []byte) (admissionv1.AdmissionResponse, int, error) {
	return e.send(ctx, http.MethodPost, "?timeout=5s", "application/json", body)
}

// send gives the zero response, which admits nothing, for what is no review.
func (e *endpoint) send(ctx context.Context, method, query, contentType string, body []byte) (admissionv1.AdmissionResponse, int, error) {
	request, err := http.NewRequestWithContext(ctx, method, e.url+query, bytes.NewReader(body))
	if err != nil {
		return admissionv1.AdmissionResponse{}, 0, err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := e.client.Do(request)
	if err != nil {
		return admissionv1.AdmissionResponse{}, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return admissionv1.AdmissionResponse{}, response.StatusCode, err
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &review); err != nil || review.Response == nil {
		return admissionv1.AdmissionResponse{}, response.StatusCode, fmt.Errorf("the answer is no review: %s (%w)", text, err)
	}
	return *review.Response, response.StatusCode, nil
}

// fuzz posts what next makes, and fails on what its check says of the answer.
func fuzz(ctx context.Context, e *endpoint, next func(*rand.Rand) ([]byte, func(*admissionv1.AdmissionResponse) error)) {
	GinkgoHelper()
	group, ctx := errgroup.WithContext(ctx)
	for c := range fuzzClients {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(fuzzSeed, uint64(c)))
			for range fuzzRounds / fuzzClients {
				body, check := next(random)
				answer, code, err := e.post(ctx, body)
				if err == nil && code >= http.StatusInternalServerError {
					err = fmt.Errorf("status %d", code)
				}
				if err == nil {
					err = check(&answer)
				}
				if err == nil && answer.Result != nil && strings.Contains(answer.Result.Message, "panic") {
					err = fmt.Errorf("answered %q", answer.Result.Message)
				}
				if err != nil {
					return fmt.Errorf("%w; posted: %.2000s", err, body)
				}
			}
			return nil
		})
	}
	Expect(group.Wait()).To(Succeed())
}
