package flood

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

const (
	lasts = time.Minute
	// honestWithin is for 99 of 100 reviews that the API server asks for meanwhile, with all that it does itself; a machine that others
	// keep busy may take four times what it takes without the flood.
	honestWithin, busyTimes = time.Second, 4
	// each is when an honest creation follows another.
	each = 10 * time.Millisecond
	// stalled are clients whose bodies never end, and flooding are those of each other attack.
	stalled, flooding = 150, 6
	// again is when each asks again: faster, and they would take the processors from the API server, which stand on the same machine
	// here.
	again = 250 * time.Millisecond
)

// filler is a field that no policy has, of so many bytes: empty objects, of which each takes fifty bytes once it is read.
func filler(bytes int) string {
	return `"unknown":[` + strings.TrimSuffix(strings.Repeat("{},", bytes/3), ",") + "]"
}

// attacks are bodies with what comes of them: the words, or those when there is no room.
var attacks = map[string]struct {
	body string
	want []string
}{
	"a review as large as an API server's":  {review(filler(6_900_000)), []string{"a policy may have at most 262144: split it"}},
	"a review larger than any":              {review(filler(8 << 20)), []string{"the review has 8389"}},
	"a policy as large as it may be":        {review(filler(250_000)), []string{`"allowed":true`}},
	"a bomb of YAML":                        {"a: &a [" + strings.Repeat("x,", 50) + "x]\nb: &b [" + strings.Repeat("*a,", 1000) + "*a]\nc: [" + strings.Repeat("*b,", 1000) + "*b]\n", []string{"400 the review is no JSON object"}},
	"an update from one to another of them": {update(filler(250_000)), []string{`"allowed":true`}},
}

func review(more string) string {
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","operation":"CREATE","userInfo":{"username":"nobody"},`+
		`"kind":{"group":"autohealer.resourcestack.com","version":"v1alpha1","kind":"ConditionSet"},"object":%s}}`, policy("a", more))
}

func update(more string) string {
	return strings.TrimSuffix(strings.Replace(review(more), "CREATE", "UPDATE", 1), "}}") + `,"oldObject":` + policy("b", more) + "}}"
}

func policy(key, more string) string {
	return `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ConditionSet","metadata":{"name":"x"},"spec":{"type":"FloodBroken","effect":"NoSchedule",` +
		`"taintKey":"example.com/` + key + `","conditions":{"FloodBroken":{"status":true}},` + more + `}}`
}

var _ = Describe("A manager with the memory that it is installed with", func() {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		It("judges what the API server asks while others flood it by "+protocol+", and tells those why it doesn't", func(ctx SpecContext) {
			before, err := managerPID()
			Expect(err).NotTo(HaveOccurred())
			_, _, quiet := honest(ctx, lasts/20)
			flood := startFlood(ctx, protocol)
			answered, p50, p99 := honest(ctx, lasts/2)
			flood.stop()

			most, err := peak()
			Expect(err).NotTo(HaveOccurred(), "the manager is there")
			suite.Measured("a flood by %s for %s: %d creations by an API server meanwhile, p50 %s, p99 %s; the manager had %d MiB at most (limited: %v)",
				protocol, lasts/2, answered, p50.Round(100*time.Microsecond), p99.Round(time.Millisecond), most>>20, confined)
			GinkgoWriter.Println(flood.counts())
			Expect(managerPID()).To(Equal(before), "the manager is the same")
			Expect(most).To(BeNumerically("<", memoryLimit))
			Expect(p99).To(BeNumerically("<=", max(honestWithin, busyTimes*quiet)), "without the flood %s", quiet)
			flood.expectWords()
		}, SpecTimeout(2*lasts))
	}
})

var _ = Describe("A policy that is larger than anybody needs", func() {
	It("is refused by its length, also when an API server sends it", func(ctx SpecContext) {
		weeder := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "large"}}
		weeder.Spec.ServicesAndDependantSelectors = map[string]v1alpha1.DependantSelectors{}
		labels := map[string]string{}
		for i := range 16 {
			labels[fmt.Sprintf("a-long-name-of-a-label-%d", i)] = fmt.Sprintf("a-long-name-of-an-application-%d", i)
		}
		for i := range 64 {
			weeder.Spec.ServicesAndDependantSelectors[fmt.Sprintf("service-%d", i)] = v1alpha1.DependantSelectors{
				PodSelectors: slices.Repeat([]v1alpha1.LabelSelector{{MatchLabels: labels}}, 8),
			}
		}
		Expect(h.Client.Create(ctx, weeder, client.DryRunAll)).To(MatchError(MatchRegexp("guard/object: not checked: the object has [0-9]{6} bytes as JSON, and a policy may have at most 262144: split it")))
	}, SpecTimeout(lasts))
})

// honest has the API server ask for reviews for a while, of which each must be answered, and gives how long 50 and 99 of 100
// creations took.
func honest(ctx context.Context, lasts time.Duration) (answered int, p50, p99 time.Duration) {
	GinkgoHelper()
	var took []time.Duration
	until, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	for range ticks(until, each) {
		set := &v1alpha1.ConditionSet{}
		Expect(json.Unmarshal([]byte(policy("honest", `"mode":"Observe"`)), set)).To(Succeed())
		set.Name = fmt.Sprintf("honest-%d", len(took))
		asked := time.Now()
		Expect(h.Client.Create(ctx, set, client.DryRunAll)).To(Succeed())
		took = append(took, time.Since(asked))
	}
	slices.Sort(took)
	return len(took), took[len(took)/2], took[len(took)*99/100]
}

// flood is what nobody should be able to do.
type flood struct {
	url     string
	client  *http.Client
	stop    func()
	mu      sync.Mutex
	answers map[string]map[string]int // needs mu; by attack and by what was said
}

func startFlood(ctx context.Context, protocol string) *flood {
	GinkgoHelper()
	f := &flood{url: webhookURL(ctx), answers: map[string]map[string]int{}}
	dialer := &net.Dialer{}
	if runtime.GOOS == "linux" { // others have one address of loopback
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)} // a pod's address isn't an API server's
	}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: protocol == "HTTP/2.0",
	}
	f.client = &http.Client{Transport: transport}
	until, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	f.stop = func() {
		cancel()
		running.Wait()
		transport.CloseIdleConnections()
	}
	DeferCleanup(f.stop)
	for name, attack := range attacks {
		for range flooding {
			running.Go(func() {
				for range ticks(until, again) {
					f.note(name, f.post(until, strings.NewReader(attack.body), int64(len(attack.body))))
				}
			})
		}
	}
	for range stalled {
		running.Go(func() {
			for range ticks(until, again) {
				body, end := lastByteMissing(until, attacks["a policy as large as it may be"].body)
				f.note("a body that doesn't end", f.post(until, body, int64(len(attacks["a policy as large as it may be"].body))))
				end()
			}
		})
	}
	return f
}

// ticks comes now and again until the end.
func ticks(ctx context.Context, every time.Duration) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for yield(struct{}{}) {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// lastByteMissing gives all of a body but its end, until it is told to end.
func lastByteMissing(ctx context.Context, body string) (io.Reader, func()) {
	read, write := io.Pipe()
	ctx, end := context.WithCancel(ctx)
	go func() {
		_, _ = io.WriteString(write, body[:len(body)-1])
		<-ctx.Done()
		_ = write.CloseWithError(ctx.Err())
	}()
	return read, end
}

func webhookURL(ctx context.Context) string {
	GinkgoHelper()
	var all admissionregistrationv1.ValidatingWebhookConfigurationList
	Expect(h.Client.List(ctx, &all)).To(Succeed())
	for _, configuration := range all.Items {
		for _, hook := range configuration.Webhooks {
			if hook.ClientConfig.URL != nil {
				at, err := url.Parse(*hook.ClientConfig.URL)
				Expect(err).NotTo(HaveOccurred())
				at.RawQuery = "timeout=30s"
				return at.String()
			}
		}
	}
	Fail("no webhook has a URL")
	return ""
}

// post gives what was answered; "" when the connection ended, as that of who is refused before the body is read.
func (f *flood) post(ctx context.Context, body io.Reader, size int64) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, body)
	if err != nil {
		return err.Error()
	}
	request.ContentLength = size
	request.Header.Set("Content-Type", "application/json")
	response, err := f.client.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return fmt.Sprint(response.StatusCode, " ", status.Message)
	}
	return string(bytes.TrimSpace(text))
}

func (f *flood) note(attack, answer string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers[attack] == nil {
		f.answers[attack] = map[string]int{}
	}
	f.answers[attack][answer]++
}

// counts are how often what was answered, of each attack.
func (f *flood) counts() map[string]map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answers
}

// expectWords: whoever was answered was told why, or judged.
func (f *flood) expectWords() {
	GinkgoHelper()
	for attack, answers := range f.counts() {
		for answer := range answers {
			words := append(attacks[attack].want, "429 the webhook has as many reviews as it can judge; try again in a moment", "504 Timeout: the review did not come whole within 4.5s")
			Expect(answer == "" || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(answer, w) })).To(BeTrue(), "%s: %s", attack, answer)
		}
	}
}
