package actuate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/xds"
)

// slow is an API server with policies named by numbers: a read takes 2 ms.
type slow struct {
	client.Reader
	policies int
	perPage  time.Duration
	down     bool
}

func (s *slow) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetUID(types.UID(key.Name))
	o.SetGeneration(1)
	return s.takes(ctx, 2*time.Millisecond)
}

func (s *slow) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	from, _ := strconv.Atoi(o.Continue)
	to := min(from+int(o.Limit), s.policies)
	all := list.(*metav1.PartialObjectMetadataList)
	for i := from; i < to; i++ {
		all.Items = append(all.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), Generation: 1}})
	}
	if to < s.policies {
		all.Continue = strconv.Itoa(to)
	}
	return s.takes(ctx, s.perPage)
}

func (s *slow) takes(ctx context.Context, d time.Duration) error {
	if s.down {
		d = time.Hour
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ownPolicies are clusters with a policy each.
func ownPolicies(t *testing.T, n int) (all []Cluster) {
	t.Helper()
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := strconv.Itoa(i)
		op := &v1alpha1.OutlierPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: 1},
			Spec: v1alpha1.OutlierPolicySpec{
				Mode: v1alpha1.Enforce, OutlierDetection: &v1alpha1.OutlierDetection{ConsecutiveServerErrors: new(int32(5))},
				TargetRefs: []v1alpha1.OutlierTargetReference{{Kind: "Service", Name: name}},
			},
		}
		var c Cluster
		c.Admitted, _ = guard.Admit(t.Context(), g, op)
		if c.Policy, err = outlier.NewPolicy(op); err != nil {
			t.Fatal(err)
		}
		c.Key = outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: name}, Port: 80}
		all = append(all, c)
	}
	return all
}

// A manager that starts asks about all policies, and no Envoy gets anything before it knows.
func TestEnvoysAreServedAfterARestartHoweverManyPoliciesThereAre(t *testing.T) {
	for n, perPage := range map[int]time.Duration{400: 10 * time.Millisecond, 650: 10 * time.Millisecond, 1000: 10 * time.Millisecond, 5000: 10 * time.Millisecond, 1500: time.Second} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			all := ownPolicies(t, n)
			synctest.Test(t, func(t *testing.T) {
				clusters := &Clusters{Server: server, Current: &kube.Generations{Reader: &slow{policies: n, perPage: perPage}, Clock: clock.RealClock{}}, Acts: logr.Discard()}
				began := time.Now()
				if held, _, err := clusters.Apply(t.Context(), all, Absent{}); err != nil || len(held) > 0 {
					t.Fatalf("%d are held, error %v", len(held), err)
				}
				if took := time.Since(began); took > time.Duration(n/500+1)*perPage {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// What nobody confirms is waited for, and not for ever: then it has its place and detects nothing, until it is confirmed.
func TestWhatIsNotConfirmedIsServedInTheEndAndDetectsNothing(t *testing.T) {
	server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	all := append(ownPolicies(t, 20), Cluster{})
	all[20].Key = outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: "mail"}, Port: 25}
	notAdmitted := slices.Clone(all)
	notAdmitted[3].Admitted = AdmittedOutlier{}
	synctest.Test(t, func(t *testing.T) {
		api, patient := &slow{policies: 20, perPage: 10 * time.Millisecond, down: true}, true
		clusters := &Clusters{
			Server: server, Current: &kube.Generations{Reader: api, Clock: clock.RealClock{}}, Acts: logr.Discard(),
			Waits: func() bool { return patient },
		}
		apply := func(of []Cluster) (held, told, detecting int, err error) {
			all, _, err := clusters.Apply(t.Context(), of, Absent{})
			for _, c := range clusters.last {
				told++
				if c.cluster.GetOutlierDetection() != nil {
					detecting++
				}
			}
			return len(all), told, detecting, err
		}
		if _, told, _, err := apply(all); !errors.Is(err, context.DeadlineExceeded) || told > 0 {
			t.Errorf("the API server doesn't answer: %d are told, error %v", told, err)
		}
		patient = false
		if held, told, detecting, err := apply(all); err != nil || held != 20 || told != 21 || detecting != 0 {
			t.Errorf("nobody waits any more: %d held, %d told, %d detect, error %v", held, told, detecting, err)
		}
		api.down = false
		if held, told, detecting, err := apply(notAdmitted); err != nil || held != 1 || told != 21 || detecting != 19 {
			t.Errorf("the API server answers, and one isn't admitted: %d held, %d told, %d detect, error %v", held, told, detecting, err)
		}
		if held, _, detecting, err := apply(all); err != nil || held != 0 || detecting != 20 {
			t.Errorf("all are admitted: %d held, %d detect, error %v", held, detecting, err)
		}
		time.Sleep(time.Minute) // in the bubble: reads that nobody waits for any more end by themselves
	})
}
