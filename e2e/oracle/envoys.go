package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// envoys is a resource that no API server has: what Envoys run with, as whoever started them tells.
var envoys = schema.GroupVersionResource{Group: "envoyproxy.io", Version: "v3", Resource: "envoys"}

// Runs tells with which clusters an Envoy runs, by its own dump of its dynamic_active_clusters; nil once it has ended. What the manager has Envoys
// do is seen nowhere else.
func (o *Oracle) Runs(envoy string, dump []byte) error {
	return o.history.runs(envoy, dump, time.Now())
}

// runs takes in a dump, if an Envoy detects outliers otherwise than by the one before.
func (h *history) runs(envoy string, dump []byte, now time.Time) error {
	key := objectKey{envoys, types.UID(envoy)}
	var object []byte
	at := now
	if dump != nil {
		var err error
		if object, at, err = detectionIn(dump); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Equal(object, h.latest[key]) {
		return nil
	}
	h.latest[key] = object
	for _, r := range h.envoys {
		if r.objectKey == key && r.at.After(at) { // a cluster went, and no cluster that is there says when
			at = r.at
		}
	}
	h.envoys = append(h.envoys, revision{revisionKey: revisionKey{objectKey: key}, name: "envoys/" + envoy, object: object, at: at})
	return nil
}

// detectionIn encodes what of a dump is judged, and finds since when it has been so.
func detectionIn(dump []byte) (object []byte, since time.Time, err error) {
	var is struct {
		Configs []struct {
			Cluster struct {
				Name      string
				Detection json.RawMessage `json:"outlier_detection"`
			}
			LastUpdated time.Time `json:"last_updated"`
		}
	}
	if err := json.Unmarshal(dump, &is); err != nil {
		return nil, since, fmt.Errorf("read an Envoy's dump: %w", err)
	}
	clusters := map[string]json.RawMessage{}
	for _, c := range is.Configs {
		if c.LastUpdated.After(since) {
			since = c.LastUpdated
		}
		if c.Cluster.Detection != nil {
			clusters[c.Cluster.Name] = c.Cluster.Detection
		}
	}
	object, err = json.Marshal(map[string]any{"kind": "Envoy", "clusters": clusters})
	return object, since, err
}

// seenLate is how long after the manager acted on a revision it may be seen here.
const seenLate = 5 * time.Second

// placed gives what Envoys had its place among revisions of the API server's, by the time: after those that were before, and that may have been.
func placed(envoys, revisions []revision) []revision {
	all := slices.Clone(envoys)
	slices.SortStableFunc(all, func(a, b revision) int { return a.at.Compare(b.at) })
	for i := range all {
		for _, r := range revisions {
			if !r.at.After(all[i].at.Add(seenLate)) {
				all[i].version = max(all[i].version, r.version)
			}
		}
	}
	return all
}
