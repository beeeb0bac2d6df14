package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
var ErrRecalled = errors.New("acts are recorded that weren't known")

// Record keeps acts that limits count in a ConfigMap, noted before they are done: they outlive the objects that they are done to, the
// policies that ask for them and all replicas. Who can write it can hold acts back until they are forgotten, and no more: what is lost
// is written again from what the leader remembers.
type Record struct {
	// Reader reads from the API server, past the cache.
	Reader          client.Reader
	Writer          client.Writer
	Namespace, Name string

	mu       sync.Mutex
	recalled bool // needs mu, as all below
	// begun are acts noted here that may not have come about.
	begun map[types.UID]time.Time
}

// Planner is who counts the acts.
type Planner struct {
	// Recall takes in recorded acts, and says whether one is news.
	Recall func([]limit.Act) (news bool)
	// Known are all that it counts.
	Known func() []limit.Act
}

// noted is an act in the record, under the UID of its object.
type noted struct {
	Name  string      `json:"name"`
	Zone  string      `json:"zone,omitempty"`
	Began metav1.Time `json:"began"`
	Ended bool        `json:"ended,omitempty"`
}

// Recall has the planner of a new process know, once, what earlier ones noted. It gives ErrRecalled when that is news.
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
	if r.recalled = true; planner.Recall(acts) {
		return ErrRecalled
	}
	return nil
}

// Begin notes an act that is done next, and drops what began before a time. It gives ErrRecalled when another is recorded that is
// news to the planner; then nothing is noted.
func (r *Record) Begin(ctx context.Context, act limit.Act, since time.Time, planner Planner) error {
	return r.change(ctx, func(stored *corev1.ConfigMap, acts []limit.Act) error {
		if planner.Recall(r.others(acts)) {
			return ErrRecalled
		}
		if err := r.write(ctx, stored, since, append(append(acts, planner.Known()...), act)); err != nil {
			return err
		}
		if r.begun == nil {
			r.begun = map[types.UID]time.Time{}
		}
		r.begun[act.UID] = act.Began.Truncate(time.Second)
		return nil
	})
}

// End notes that the act on an object was undone.
func (r *Record) End(ctx context.Context, uid types.UID) error {
	return r.change(ctx, func(stored *corev1.ConfigMap, acts []limit.Act) error {
		i := slices.IndexFunc(acts, func(a limit.Act) bool { return a.UID == uid && !a.Ended })
		if i < 0 {
			return nil
		}
		acts[i].Ended = true
		return r.write(ctx, stored, time.Time{}, acts)
	})
}

// change reads the record and has it changed, again when somebody else was faster.
func (r *Record) change(ctx context.Context, change func(stored *corev1.ConfigMap, acts []limit.Act) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultBackoff, lost, func() error {
		stored, acts, err := r.read(ctx)
		if err != nil {
			return err
		}
		return change(stored, acts)
	})
}

// Done says that the act on an object came about, so that the planner knows it by now.
func (r *Record) Done(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.begun, uid)
}

// others are acts that came about, for all that is known: not those that were noted here and failed.
func (r *Record) others(acts []limit.Act) (others []limit.Act) {
	for _, a := range acts {
		if began, ours := r.begun[a.UID]; !ours || !began.Equal(a.Began) {
			others = append(others, a)
		}
	}
	return others
}

func (r *Record) read(ctx context.Context) (stored *corev1.ConfigMap, acts []limit.Act, err error) {
	stored = &corev1.ConfigMap{}
	if err := r.Reader.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, stored); err != nil {
		if apierrors.IsNotFound(err) {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: r.Namespace, Name: r.Name, Labels: map[string]string{"app.kubernetes.io/name": "autohealer"},
			}}, nil, nil
		}
		return nil, nil, fmt.Errorf("read ConfigMap %s/%s, which records what limits count: %w", r.Namespace, r.Name, err)
	}
	for uid, text := range stored.Data {
		var n noted
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			return nil, nil, fmt.Errorf("read entry %s of ConfigMap %s/%s, which records what limits count: %w; delete the ConfigMap, and it is made anew of what this manager knows",
				uid, r.Namespace, r.Name, err)
		}
		acts = append(acts, limit.Act{UID: types.UID(uid), Name: n.Name, Zone: n.Zone, Began: n.Began.Time, Ended: n.Ended})
	}
	return stored, acts, nil
}

func (r *Record) write(ctx context.Context, stored *corev1.ConfigMap, since time.Time, acts []limit.Act) (err error) {
	var all limit.Memory
	for _, a := range acts {
		all.Remember(a)
	}
	all.Forget(since)
	stored.Data = map[string]string{}
	for _, a := range all.Acts() {
		text, err := json.Marshal(noted{a.Name, a.Zone, metav1.NewTime(a.Began), a.Ended})
		if err != nil {
			return fmt.Errorf("record an act on %s: %w", a.Name, err)
		}
		stored.Data[string(a.UID)] = string(text)
	}
	if stored.ResourceVersion == "" {
		err = r.Writer.Create(ctx, stored)
	} else {
		err = r.Writer.Update(ctx, stored)
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s, which records what limits count: %w", r.Namespace, r.Name, err)
	}
	return nil
}
