package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/webhooks"
)

// noop is what a webhook of controller-runtime costs that decides nothing: the reference for ours.
func noop() *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})}
}

// handlerOver is our webhook over facts of so many nodes and sets, in memory.
func handlerOver(nodes, sets int) (*admission.Webhook, *guard.Guard, error) {
	now := time.Now()
	facts := &kube.Facts{
		Fleet: condition.NewFleet(limit.Builtin()), Yard: weed.NewYard(limit.Builtin(), ""),
		Clock: clock.RealClock{}, Server: &kube.ServerClock{Clock: clock.RealClock{}},
	}
	at := condition.Moment{Now: now, Server: now}
	for i := range sets {
		cs := conditionSet(setName(i), i%50)
		cs.UID, cs.Generation = types.UID(fmt.Sprintf("set-%d", i)), 1
		set, err := condition.NewSet(cs)
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", cs.Name, err)
		}
		facts.Fleet.ObserveSet(set, condition.Active, nil, "", at)
	}
	for beat := range 2 { // a heartbeat seen to change proves that the reporter lives
		for i := range nodes {
			facts.Fleet.ObserveNode(reportingNode(i, beat), at)
		}
	}
	facts.Fleet.MarkSynced(at)
	facts.Yard.MarkSynced(weed.Moment(at))
	facts.Heard()
	rules, err := guard.New(guard.Options{
		Facts: facts, Planners: map[string]guard.Planner{"ConditionSet": guard.PlannerOf(facts.PreviewConditionSet)},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make a guard: %w", err)
	}
	return webhooks.New(rules), rules, nil
}

// reportingNode reports what the nodes of the scenarios do; one in a hundred matches a set.
func reportingNode(i, beat int) *corev1.Node {
	began := metav1.NewTime(time.Now().Truncate(time.Hour))
	heartbeat := metav1.NewTime(began.Add(time.Duration(beat) * time.Second))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: strconv.Itoa(beat + 1)}}
	for t := range typesPerNode {
		status := corev1.ConditionFalse
		if t == 0 && i%100 == 0 {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: conditionType((i + t) % 50), Status: status, LastHeartbeatTime: heartbeat, LastTransitionTime: began,
		})
	}
	return node
}

// review is an AdmissionReview as the API server sends it for a new set.
func review() ([]byte, error) {
	cs := newSet()
	cs.UID, cs.Generation, cs.CreationTimestamp = "0f0c1a8e-5d1b-4f0a-9c59-3c2b1a0d9e8f", 1, metav1.Now()
	object, err := json.Marshal(cs)
	if err != nil {
		return nil, fmt.Errorf("encode a set: %w", err)
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Name: cs.Name, Operation: admissionv1.Create,
			Kind:     metav1.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: "ConditionSet"},
			Resource: metav1.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Resource: "conditionsets"},
			UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters", "system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object},
		},
	})
}

// server serves webhooks as a manager does, over TLS, in this program.
type server struct {
	url    string
	ca     []byte
	client *http.Client
}

// serve serves until ctx ends.
func serve(ctx context.Context, hooks map[string]http.Handler) (*server, error) {
	logf.SetLogger(logr.Discard())
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
	}}})
	for path, hook := range hooks {
		s.Register(path, hook)
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Start(ctx) }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	served := &server{url: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ca: certificate, client: &http.Client{
		Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}},
	}}
	for s.StartedChecker()(nil) != nil {
		select {
		case err := <-failed:
			return nil, fmt.Errorf("serve webhooks: %w", err)
		default:
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return served, nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// ask sends one review and makes sure that it is allowed.
func (s *server) ask(ctx context.Context, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	if !bytes.Contains(answer, []byte(`"allowed":true`)) {
		return fmt.Errorf("%s answers %s", path, answer)
	}
	return nil
}
