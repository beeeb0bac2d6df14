package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// envoyClusters is a resource that no API server has: the clusters that Envoys run with, as whoever started them tells.
var envoyClusters = schema.GroupVersionResource{Group: "envoyproxy.io", Version: "v3", Resource: "clusters"}

// Running is a cluster that an Envoy runs with since a moment: Config is Envoy's, as its own dump writes it.
type Running struct {
	Name   string
	Since  time.Time
	Config json.RawMessage
}

// Runs tells with which clusters an Envoy runs, all of them; none once it has ended. What the manager has Envoys do is seen nowhere else.
func (o *Oracle) Runs(envoy string, clusters []Running) {
	o.history.runs(envoy, clusters, time.Now())
}

// runs takes in what changed of how an Envoy detects outliers.
func (h *history) runs(envoy string, clusters []Running, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, after := h.running[envoy], map[string]string{}
	for _, c := range clusters {
		text := detectionOf(c)
		after[c.Name] = text
		if was, is := before[c.Name]; !is || was != text {
			h.told(envoy, c.Name, []byte(text), c.Since)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, is := after[name]; !is {
			h.told(envoy, name, nil, now)
		}
	}
	h.running[envoy] = after
}

func (h *history) told(envoy, cluster string, object []byte, at time.Time) {
	key := objectKey{envoyClusters, types.UID(envoy + " " + cluster)}
	h.envoys = append(h.envoys, revision{revisionKey: revisionKey{objectKey: key}, name: "clusters/" + cluster, object: object, at: at})
}

// detectionOf encodes what of a cluster is judged.
func detectionOf(c Running) string {
	var is struct {
		Kind      string          `json:"kind"`
		Name      string          `json:"name"`
		Detection json.RawMessage `json:"outlier_detection,omitempty"`
	}
	err := json.Unmarshal(c.Config, &is)
	is.Kind, is.Name = "EnvoyCluster", c.Name
	encoded, encodeErr := json.Marshal(is)
	if err := cmp.Or(err, encodeErr); err != nil { // not for what came as JSON
		panic(fmt.Sprintf("encode cluster %s: %v", c.Name, err))
	}
	return string(encoded)
}

// seenLate is how long after the manager acted on a revision it may be seen here.
const seenLate = time.Second

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
