package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/xds"
)

const (
	// replicasName is the ConfigMap in which each replica has an entry.
	replicasName = "autohealer-envoys"
	// exchangeEvery is how often a replica reads the others' entries, and writes its own where that changed.
	exchangeEvery = 2 * time.Second
	// renewEvery is how often it writes an entry that didn't change. One that isn't renewed three times is of a replica that is gone.
	renewEvery, goneAfter = 10 * time.Second, 30 * time.Second
	// leaveWithin bounds how long a replica takes its entry out when it ends.
	leaveWithin = 2 * time.Second
)

// Replicas tells the other replicas which Envoys are connected to this one, and learns of theirs: the leader writes statuses, and Envoys
// are connected to any. It is a Runnable of every replica.
type Replicas struct {
	// Reader reads from the API server, past the cache.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	// ID is this replica's alone.
	ID     string
	Server *xds.Server
	Clock  clock.WithTicker

	// What follows is the exchanging goroutine's: when it read last, the entries of others, and what those that are there report.
	looked time.Time
	seen   map[string]seen
	others []xds.Report
	// known is what the server was told last of whether that is all.
	known bool
}

// seen is an entry of another replica, and since when it is as it is by this process's clock: others' clocks may be wrong.
type seen struct {
	text  string
	since time.Time
}

// entry is what a replica writes.
type entry struct {
	// Renewed by the replica's own clock, which nobody else reads.
	Renewed time.Time `json:"renewed"`
	xds.Report
}

// NeedLeaderElection is false: every replica tells.
func (*Replicas) NeedLeaderElection() bool { return false }

// Known says whether the others' entries were read lately, and could be.
func (r *Replicas) Known() bool {
	at := r.Server.LearnedAt()
	return !at.IsZero() && r.Clock.Since(at) < goneAfter
}

// errNotOurs is as long as the manager hasn't found out that no other installation is in the cluster.
var errNotOurs = errors.New("the cluster isn't known to be this installation's")

// Start exchanges entries until the context ends, and then takes its own out.
func (r *Replicas) Start(ctx context.Context) error {
	ticker := r.Clock.NewTicker(exchangeEvery)
	defer ticker.Stop()
	problem := ""
	for {
		err := r.exchange(ctx, r.Server.Report())
		if err != nil && !errors.Is(err, errNotOurs) && ctx.Err() == nil && problem != err.Error() { // which would else be told every time
			problem = err.Error()
			log.FromContext(ctx).Error(err, "Can't exchange with other replicas which Envoys are connected; statuses don't count them")
		} else if err == nil {
			problem = ""
		}
		select {
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
			defer cancel()
			if err := r.exchange(leaving, xds.Report{}); err != nil {
				log.FromContext(ctx).V(1).Info("Other replicas count the Envoys of this one for a while", "reason", err.Error())
			}
			return nil
		case <-ticker.C():
		}
	}
}

// exchange reads the others' entries and has its own as it is to be: there is none without clients.
func (r *Replicas) exchange(ctx context.Context, own xds.Report) error {
	if r.known && !r.Known() { // statuses claim what nobody could read for too long
		r.known = false
		r.Server.Learn(r.others, time.Time{}, true)
	}
	if serves := r.Server.Serves; serves != nil && !serves() {
		return errNotOurs
	}
	return unlessLost(func() error {
		stored, err := readConfigMap(ctx, r.Reader, r.Namespace, replicasName)
		if err != nil {
			return fmt.Errorf("read ConfigMap %s/%s: %w", r.Namespace, replicasName, err)
		}
		pruned := r.look(stored)
		changed, err := r.put(stored, own)
		if err == nil && (changed || pruned) {
			err = writeConfigMap(ctx, r.Writer, stored)
		}
		if err != nil {
			return fmt.Errorf("write ConfigMap %s/%s: %w", r.Namespace, replicasName, err)
		}
		return nil
	})
}

// look learns of the others' entries, and takes out those of replicas that are gone: then there is something to write.
func (r *Replicas) look(stored *corev1.ConfigMap) (pruned bool) {
	now, all := r.Clock.Now(), map[string]seen{}
	at := now
	if gap := now.Sub(r.looked); !r.looked.IsZero() && gap > renewEvery { // who couldn't be read wasn't silent
		for id, s := range r.seen {
			r.seen[id] = seen{s.text, s.since.Add(gap)}
		}
	}
	r.looked = now
	var others []xds.Report
	for _, id := range slices.Sorted(maps.Keys(stored.Data)) {
		s, text := r.seen[id], stored.Data[id]
		if s.text != text {
			s = seen{text, now}
		}
		if id == r.ID {
			continue
		}
		all[id] = s
		if now.Sub(s.since) >= goneAfter {
			delete(stored.Data, id)
			pruned = true
			continue
		}
		var e entry
		if err := json.Unmarshal([]byte(text), &e); err != nil { // another version's
			at = time.Time{}
			continue
		}
		others = append(others, e.Report)
	}
	r.seen = all
	news := r.known == at.IsZero() || !equality.Semantic.DeepEqual(others, r.others)
	r.others, r.known = others, !at.IsZero()
	r.Server.Learn(others, at, news)
	return pruned
}

// put has the replica's own entry as it is to be, unless it is so already and was written lately.
func (r *Replicas) put(stored *corev1.ConfigMap, own xds.Report) (changed bool, err error) {
	text, is := stored.Data[r.ID]
	if len(own.Clients) == 0 {
		delete(stored.Data, r.ID)
		return is, nil
	}
	now := r.Clock.Now()
	var before entry
	if is && json.Unmarshal([]byte(text), &before) == nil && equality.Semantic.DeepEqual(before.Report, own) && now.Sub(before.Renewed) < renewEvery {
		return false, nil
	}
	next, err := json.Marshal(entry{now.UTC(), own})
	if err != nil {
		return false, err
	}
	if stored.Data == nil {
		stored.Data = map[string]string{}
	}
	stored.Data[r.ID] = string(next)
	return true, nil
}
