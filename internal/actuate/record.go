package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// ErrRecalled says that acts are recorded that the planner didn't know: what it planned may be one too many, and is planned again.
var ErrRecalled = errors.New("the record has acts that this manager didn't know of")

// Record keeps acts that limits count in a ConfigMap, noted before they are done: they outlive the objects that they are done to, the
// policies that ask for them and all replicas. What is lost is written again from what the leader remembers; what can't be read lets no
// further act begin.
type Record struct {
	// Reader reads from the API server, past the cache.
	Reader          client.Reader
	Writer          client.Writer
	Namespace, Name string

	mu       sync.Mutex // held while it is read and written
	recalled bool       // needs mu
	// begun are when acts were noted here that may not have come about, by UID.
	begun sync.Map
}

// Planner is who counts the acts.
type Planner struct {
	// Recall takes in recorded acts, and says whether what was planned is of before.
	Recall func([]limit.Act) (news bool)
	// Known are all that it counts.
	Known func() []limit.Act
}

// recordedAct is an act in the record, under the UID of its object.
type recordedAct struct {
	Name  string      `json:"name"`
	Zone  string      `json:"zone,omitempty"`
	Began metav1.Time `json:"began"`
}

// Recall has the planner of a new process know, once, what earlier ones noted.
func (r *Record) Recall(ctx context.Context, planner Planner) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recalled {
		return nil
	}
	_, acts, err := r.read(ctx)
	if err != nil {
		return err
	}
	planner.Recall(acts)
	r.recalled = true
	return nil
}

// Begin notes an act that is done next, and drops what began longer ago than the window. It gives ErrRecalled when the planner learns of
// another one, or has since it planned; then nothing is noted.
func (r *Record) Begin(ctx context.Context, act limit.Act, window time.Duration, planner Planner) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := act.Began.Add(-window)
	return retryOnConflict(func() error {
		stored, acts, err := r.read(ctx)
		if err != nil {
			return err
		}
		if planner.Recall(r.others(acts)) {
			return ErrRecalled
		}
		var all limit.Memory
		for _, a := range append(append(acts, planner.Known()...), act) {
			all.Remember(a, act.Began.Add(window))
		}
		all.Forget(since)
		r.begun.Range(func(uid, began any) bool {
			if began.(time.Time).Before(since) {
				r.begun.Delete(uid)
			}
			return true
		})
		r.begun.Store(act.UID, act.Began.Truncate(time.Second)) // first: the answer to the write may be lost
		return r.write(ctx, stored, all.Acts())
	})
}

// Done says that the act on an object came about, so that the planner knows it by now.
func (r *Record) Done(uid types.UID) { r.begun.Delete(uid) }

// others are acts that came about, for all that is known: not those that were noted here and failed.
func (r *Record) others(acts []limit.Act) (others []limit.Act) {
	for _, a := range acts {
		if began, ours := r.begun.Load(a.UID); !ours || !began.(time.Time).Equal(a.Began) {
			others = append(others, a)
		}
	}
	return others
}

func (r *Record) read(ctx context.Context) (stored *corev1.ConfigMap, acts []limit.Act, err error) {
	if stored, err = readConfigMap(ctx, r.Reader, r.Namespace, r.Name); err != nil {
		return nil, nil, fmt.Errorf("read ConfigMap %s/%s, which records what limits count: %w", r.Namespace, r.Name, err)
	}
	for uid, text := range stored.Data {
		var n recordedAct
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			return nil, nil, fmt.Errorf("read entry %s of ConfigMap %s/%s, which records what limits count: %w; delete the ConfigMap, and Autohealer creates it again from what this manager knows",
				uid, r.Namespace, r.Name, err)
		}
		acts = append(acts, limit.Act{UID: types.UID(uid), Name: n.Name, Zone: n.Zone, Began: n.Began.Time})
	}
	return stored, acts, nil
}

func (r *Record) write(ctx context.Context, stored *corev1.ConfigMap, acts []limit.Act) error {
	stored.Data = map[string]string{}
	for _, a := range acts {
		text, err := json.Marshal(recordedAct{a.Name, a.Zone, metav1.NewTime(a.Began)})
		if err != nil {
			return fmt.Errorf("record an act on %s: %w", a.Name, err)
		}
		stored.Data[string(a.UID)] = string(text)
	}
	if err := writeConfigMap(ctx, r.Writer, stored); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s, which records what limits count: %w", r.Namespace, r.Name, err)
	}
	return nil
}

// readConfigMap reads one that all replicas write; where there is none it gives the one to create, without a resource version.
func readConfigMap(ctx context.Context, reader client.Reader, namespace, name string) (*corev1.ConfigMap, error) {
	stored := &corev1.ConfigMap{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, stored)
	if apierrors.IsNotFound(err) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "autohealer"},
		}}, nil
	}
	return stored, err
}

func writeConfigMap(ctx context.Context, writer client.Writer, m *corev1.ConfigMap) error {
	if m.ResourceVersion == "" {
		return writer.Create(ctx, m)
	}
	return writer.Update(ctx, m)
}

// retryOnConflict does again what reads and writes a ConfigMap, while others write it at the same time.
func retryOnConflict(do func() error) error {
	lost := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultBackoff, lost, do)
}
