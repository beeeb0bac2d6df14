package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// traffic is requests to the API server that need the webhook, one after the other from several clients, and beside them
// handshakes with every manager in the service, since the API server keeps connections for long.
type traffic struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu                   sync.Mutex
	requests, handshakes int
	failures             []string
	// bundles are those that an API server may believe in: the last one, and those that it replaced within settle.
	bundles []seenBundle
}

type seenBundle struct {
	until time.Time // zero for the last one
	text  []byte
}

const clients = 3

func startTraffic() *traffic {
	ctx, cancel := context.WithCancel(context.Background())
	t := &traffic{stop: cancel}
	for i := range clients {
		t.every(ctx, 5*time.Millisecond, func(n int) { t.note(&t.requests, request(ctx, fmt.Sprintf("traffic-%d-%d", i, n))) })
	}
	t.every(ctx, 50*time.Millisecond, func(int) { t.shakeHands(ctx) })
	return t
}

func (t *traffic) every(ctx context.Context, pause time.Duration, act func(n int)) {
	t.done.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				act(n)
			}
		}
	})
}

// note counts; what was under way when the traffic was stopped doesn't count.
func (t *traffic) note(counter *int, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	*counter++
	if err != nil {
		t.failures = append(t.failures, time.Now().Format("15:04:05.000 ")+err.Error())
	}
}

// request has the API server ask the webhook about a sound set, and store nothing.
func request(ctx context.Context, name string) error {
	set := &v1alpha1.ConditionSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ConditionSetSpec{
			Type: "Traffic", Effect: "NoSchedule", TaintKey: "example.com/traffic",
			Conditions: map[string]v1alpha1.MemberCondition{"KernelDeadlock": {Status: v1alpha1.RequiredStatus{JSON: "true"}}},
		},
	}
	return c.Create(ctx, set, client.DryRunAll)
}

// shakeHands does with every manager in the service what API servers do, whether they know the last bundle already or not.
func (t *traffic) shakeHands(ctx context.Context) {
	believed, err := t.believed(ctx)
	if err != nil {
		t.note(&t.handshakes, err)
		return
	}
	for _, b := range managers.all() {
		for _, text := range believed {
			err := shakeHands(ctx, b.address, text)
			if refused, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
				t.note(&t.handshakes, fmt.Errorf("%s: %w", b.name, refused))
			} else if err == nil { // else it is just ending
				t.note(&t.handshakes, nil)
			}
		}
	}
}

func (t *traffic) believed(ctx context.Context) ([][]byte, error) {
	current, err := caBundle(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if n := len(t.bundles); n == 0 || string(t.bundles[n-1].text) != string(current) {
		if n > 0 {
			t.bundles[n-1].until = now
		}
		t.bundles = append(t.bundles, seenBundle{text: current})
	}
	var believed [][]byte
	for _, b := range t.bundles {
		if b.until.IsZero() || now.Sub(b.until) < settle-time.Second {
			believed = append(believed, b.text)
		}
	}
	return believed, nil
}

func shakeHands(ctx context.Context, address string, bundle []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 2 * time.Second},
		Config:    &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12},
	}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// expectNoLoss ends the traffic, after so many requests: nothing of it failed. A quarter of them were made while something changed, also on a
// machine that others keep busy.
func (t *traffic) expectNoLoss(ctx context.Context, atLeast int) {
	GinkgoHelper()
	Expect(t.sent()).To(BeNumerically(">", atLeast/4))
	Eventually(t.sent).WithContext(ctx).Should(BeNumerically(">", atLeast))
	t.stop()
	t.done.Wait()
	GinkgoWriter.Printf("%d requests, %d handshakes, %d failures\n", t.requests, t.handshakes, len(t.failures))
	AddReportEntry("traffic", fmt.Sprintf("%d requests, %d handshakes, %d failures", t.requests, t.handshakes, len(t.failures)))
	Expect(t.failures).To(BeEmpty())
	Expect(t.handshakes).To(BeNumerically(">", atLeast/10))
}

func (t *traffic) sent() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests
}

func caBundle(ctx context.Context) ([]byte, error) {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, types.NamespacedName{Name: "autohealer"}, config); err != nil {
		return nil, err
	}
	return config.Webhooks[0].ClientConfig.CABundle, nil
}

// authorities are the number of CAs that the API server trusts for the webhook.
func authorities(ctx context.Context) (int, error) {
	text, err := caBundle(ctx)
	if err != nil || len(text) == 0 {
		return 0, err
	}
	parsed, err := certutil.ParseCertsPEM(text)
	return len(parsed), err
}
