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
	// exchangeInterval is how often a replica reads the others' entries, and writes its own where that changed.
	exchangeInterval = 2 * time.Second
	// renewInterval is how often it writes an entry that didn't change. One that isn't renewed three times is of a replica that is gone.
	renewInterval, entryTTL = 10 * time.Second, 30 * time.Second
	// leaveTimeout bounds how long a replica takes its entry out when it ends.
	leaveTimeout = 2 * time.Second
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
	lastRead time.Time
	seen     map[string]observedEntry
	others   []xds.Report
	// known is what the server was given last of whether that is all.
	known bool
}

// observedEntry is an entry of another replica, and since when it is as it is by this process's clock: others' clocks may be wrong.
type observedEntry struct {
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
	at := r.Server.OtherReportsAt()
	return !at.IsZero() && r.Clock.Since(at) < entryTTL
}

// errNotOurs is as long as the manager hasn't found out that no other installation is in the cluster.
var errNotOurs = errors.New("the cluster isn't known to be this installation's")

// Start exchanges entries until the context ends, and then takes its own out.
func (r *Replicas) Start(ctx context.Context) error {
	ticker := r.Clock.NewTicker(exchangeInterval)
	defer ticker.Stop()
	problem := ""
	for {
		err := r.exchange(ctx, r.Server.Report())
		if err != nil && !errors.Is(err, errNotOurs) && ctx.Err() == nil && problem != err.Error() { // which would else be reported every time
			problem = err.Error()
			log.FromContext(ctx).Error(err, "Can't exchange with other replicas which Envoys are connected; statuses don't count them")
		} else if err == nil {
			problem = ""
		}
		select {
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
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
		r.Server.SetOtherReports(r.others, time.Time{}, true)
	}
	if serves := r.Server.Serves; serves != nil && !serves() {
		return errNotOurs
	}
	return retryOnConflict(func() error {
		stored, err := readConfigMap(ctx, r.Reader, r.Namespace, replicasName)
		if err != nil {
			return fmt.Errorf("read ConfigMap %s/%s: %w", r.Namespace, replicasName, err)
		}
		pruned := r.readOthers(stored)
		changed, err := r.writeOwn(stored, own)
		if err == nil && (changed || pruned) {
			err = writeConfigMap(ctx, r.Writer, stored)
		}
		if err != nil {
			return fmt.Errorf("write ConfigMap %s/%s: %w", r.Namespace, replicasName, err)
		}
		return nil
	})
}

// readOthers reads the others' entries, and takes out those of replicas that are gone: then there is something to write.
func (r *Replicas) readOthers(stored *corev1.ConfigMap) (pruned bool) {
	now, all := r.Clock.Now(), map[string]observedEntry{}
	at := now
	if gap := now.Sub(r.lastRead); !r.lastRead.IsZero() && gap > renewInterval { // who couldn't be read wasn't silent
		for id, s := range r.seen {
			r.seen[id] = observedEntry{s.text, s.since.Add(gap)}
		}
	}
	r.lastRead = now
	var others []xds.Report
	for _, id := range slices.Sorted(maps.Keys(stored.Data)) {
		s, text := r.seen[id], stored.Data[id]
		if s.text != text {
			s = observedEntry{text, now}
		}
		if id == r.ID {
			continue
		}
		all[id] = s
		if now.Sub(s.since) >= entryTTL {
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
	r.Server.SetOtherReports(others, at, news)
	return pruned
}

// writeOwn has the replica's own entry as it is to be, unless it is so already and was written lately.
func (r *Replicas) writeOwn(stored *corev1.ConfigMap, own xds.Report) (changed bool, err error) {
	text, is := stored.Data[r.ID]
	if len(own.Clients) == 0 {
		delete(stored.Data, r.ID)
		return is, nil
	}
	now := r.Clock.Now()
	var before entry
	if is && json.Unmarshal([]byte(text), &before) == nil && equality.Semantic.DeepEqual(before.Report, own) && now.Sub(before.Renewed) < renewInterval {
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
