package envoy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

var adminClient = &http.Client{Timeout: 10 * time.Second}

func (e *Envoy) adminText(path string) ([]byte, error) {
	r, err := adminClient.Get("http://" + e.admin + path)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy: %w", err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy: %w", err)
	}
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask Envoy for %s: %s: %s", path, r.Status, text)
	}
	return text, nil
}

func (e *Envoy) adminJSON(path string, into any) error {
	text, err := e.adminText(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read Envoy's %s: %w", path, err)
	}
	return nil
}

// Stat is a counter or gauge by its full name; 0 when there is none.
func (e *Envoy) Stat(name string) int64 {
	e.t.Helper()
	var found struct {
		Stats []struct {
			Name  string `json:"name"`
			Value int64  `json:"value"`
		} `json:"stats"`
	}
	if err := e.adminJSON("/stats?format=json&type=All&filter="+escape(name), &found); err != nil {
		e.t.Fatal(err)
	}
	for _, s := range found.Stats {
		if s.Name == name {
			return s.Value
		}
	}
	return 0
}

// escape a name for the filter, which is a regular expression in a query.
func escape(name string) string {
	return strings.NewReplacer("/", "%2F", "#", "%23", "@", "%40").Replace(name)
}

// Host of a cluster.
type Host struct {
	Address string // host:port
	Ejected bool
}

// Hosts of a cluster, as Envoy sees them; nil while it hasn't the cluster.
func (e *Envoy) Hosts(cluster string) []Host {
	e.t.Helper()
	var found struct {
		ClusterStatuses []struct {
			Name         string `json:"name"`
			HostStatuses []struct {
				Address struct {
					SocketAddress struct {
						Address   string `json:"address"`
						PortValue int    `json:"port_value"`
					} `json:"socket_address"`
				} `json:"address"`
				HealthStatus struct {
					FailedOutlierCheck bool `json:"failed_outlier_check"`
				} `json:"health_status"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := e.adminJSON("/clusters?format=json", &found); err != nil {
		e.t.Fatal(err)
	}
	for _, c := range found.ClusterStatuses {
		if c.Name != cluster {
			continue
		}
		hosts := make([]Host, 0, len(c.HostStatuses))
		for _, h := range c.HostStatuses {
			a := h.Address.SocketAddress
			hosts = append(hosts, Host{Address: net.JoinHostPort(a.Address, strconv.Itoa(a.PortValue)), Ejected: h.HealthStatus.FailedOutlierCheck})
		}
		return hosts
	}
	return nil
}

// Threshold is after how many errors in a row a host of a cluster is ejected, by Envoy's own dump of what it runs with: 0 when it
// detects nothing, -1 while it hasn't the cluster.
func (e *Envoy) Threshold(cluster string) int {
	e.t.Helper()
	var has struct {
		OutlierDetection *struct {
			Consecutive5XX int `json:"consecutive_5xx"`
		} `json:"outlier_detection"`
	}
	switch text := e.Cluster(cluster); {
	case text == nil:
		return -1
	case json.Unmarshal(text, &has) != nil:
		e.t.Fatalf("read what Envoy has of cluster %s: %s", cluster, text)
	case has.OutlierDetection == nil:
		return 0
	}
	return has.OutlierDetection.Consecutive5XX
}

// running is where Envoy tells of the clusters that it runs with.
const running = "/config_dump?resource=dynamic_active_clusters"

// Cluster is one that Envoy runs with, by its own dump, as JSON; nil while it hasn't it.
func (e *Envoy) Cluster(name string) json.RawMessage {
	e.t.Helper()
	var dump struct {
		Configs []struct {
			Cluster json.RawMessage `json:"cluster"`
		} `json:"configs"`
	}
	if err := e.adminJSON(running, &dump); err != nil {
		e.t.Fatal(err)
	}
	for _, c := range dump.Configs {
		var named struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(c.Cluster, &named); err != nil {
			e.t.Fatal(err)
		}
		if named.Name == name {
			return c.Cluster
		}
	}
	return nil
}

// Running is Envoy's own dump of all clusters that it was told of and runs with, as JSON. Unlike what else is asked, it may be asked for where no
// test can fail; an Envoy that has ended gives an error.
func (e *Envoy) Running() ([]byte, error) { return e.adminText(running) }

// Ejected are the hosts of a cluster that are ejected now, host:port.
func (e *Envoy) Ejected(cluster string) []string {
	e.t.Helper()
	ejected := []string{}
	for _, h := range e.Hosts(cluster) {
		if h.Ejected {
			ejected = append(ejected, h.Address)
		}
	}
	return ejected
}

// Event is one line of the log of ejections.
type Event struct {
	Type         string    `json:"type"`
	ClusterName  string    `json:"cluster_name"`
	UpstreamURL  string    `json:"upstream_url"`
	Action       string    `json:"action"`
	NumEjections int       `json:"num_ejections"`
	Enforced     bool      `json:"enforced"`
	Timestamp    time.Time `json:"timestamp"`
	// SecsSinceLastAction is since the host was ejected or came back.
	SecsSinceLastAction string `json:"secs_since_last_action"`
}

// Events of a cluster that Envoy has logged, in their order.
func (e *Envoy) Events(cluster string) []Event {
	e.t.Helper()
	text, err := os.ReadFile(e.path("ejections.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		e.t.Fatal(err)
	}
	events := []Event{}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var event Event
		if err := json.Unmarshal(line, &event); err != nil {
			e.t.Fatalf("read the log of ejections: %v: %s", err, line)
		}
		if event.ClusterName == cluster {
			events = append(events, event)
		}
	}
	return events
}
