package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
)

var eventResource = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}

func TestAnEventThatIsRejectedIsLogged(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		refused := apierrors.NewForbidden(eventResource, "", errors.New("no right"))
		g.Expect(json.NewEncoder(w).Encode(refused.Status())).To(Succeed())
	}))
	t.Cleanup(server.Close)
	out := gbytes.NewBuffer()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}).EventsV1()})
	t.Cleanup(broadcaster.Shutdown)
	log := logr.FromSlogHandler(logHandler(options{logFormat: "text"}, out))
	g.Expect(broadcaster.StartRecordingToSinkWithContext(logr.NewContext(t.Context(), log))).To(Succeed())
	recorder := broadcaster.NewRecorder(scheme.Scheme, "autohealer")
	recorder.Eventf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "a"}}, nil, "Normal", "Reason", "Action", "note")
	g.Eventually(out).WithTimeout(10 * time.Second).Should(gbytes.Say(`level=ERROR msg="Server rejected event \(will not retry!\)" err=`))
}

func TestAnEventInANamespaceThatEndsIsNotLogged(t *testing.T) {
	ends := apierrors.NewForbidden(eventResource, "", errors.New("it is being terminated"))
	ends.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shoot")
	for name, test := range map[string]struct {
		message string
		err     error
		logged  bool
	}{
		"it is being deleted":               {"Server rejected event (will not retry!)", ends, false},
		"it is gone":                        {"Server rejected event (will not retry!)", fmt.Errorf("write: %w", gone), false},
		"something else isn't found":        {"Server rejected event (will not retry!)", apierrors.NewNotFound(eventResource, "a"), true},
		"without an error":                  {"Server rejected event (will not retry!)", nil, true},
		"another write in one that is gone": {"Reconciler error", gone, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, format := range []string{"text", "json"} {
				var out strings.Builder
				logr.FromSlogHandler(logHandler(options{logFormat: format}, &out)).Error(test.err, test.message)
				if got := out.Len() > 0; got != test.logged {
					t.Errorf("%s: logged %q", format, out.String())
				}
			}
		})
	}
}
