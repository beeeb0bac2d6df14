package envoys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
)

const (
	// countPath returns in how many clusters hosts are ejected: a few bytes, where an Envoy's clusters may be 50 MB.
	countPath = "/stats?format=json&type=Gauges&usedonly&filter=outlier_detection.ejections_active%24"
	// hostsPath returns all hosts of all clusters.
	hostsPath = "/clusters?format=json"
	// maxCountBytes and maxHostsBytes bound the answers.
	maxCountBytes, maxHostsBytes = 16 << 20, 256 << 20
	// maxEjected bounds the ejected hosts of one Envoy.
	maxEjected = 20000
)

// fetchEjected fetches the ejected hosts of one Envoy.
func (p *Poller) fetchEjected(ctx context.Context, address string) (scope ejection.Scope, ejected []ejection.Host, err error) {
	active := false
	scope, err = p.get(ctx, address, countPath, maxCountBytes, func(r io.Reader) (err error) {
		active, err = anyActive(r)
		return err
	})
	if err != nil || !active {
		return scope, nil, err
	}
	scope, err = p.get(ctx, address, hostsPath, maxHostsBytes, func(r io.Reader) (err error) {
		ejected, err = readEjected(r)
		return err
	})
	return scope, ejected, err
}

// get reads one answer, and returns the scope that it counts for.
func (p *Poller) get(ctx context.Context, address, path string, limit int64, read func(io.Reader) error) (scope ejection.Scope, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return scope, fmt.Errorf("ask %s: %w", address, err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		if inner := new(url.Error); errors.As(err, &inner) {
			err = inner.Err // without the address, which the Envoy's name stands for
		}
		return scope, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return scope, fmt.Errorf("it answers %s", response.Status)
	}
	if scope, err = p.Identity.scope(response.TLS); err != nil {
		return scope, err
	}
	body := &io.LimitedReader{R: response.Body, N: limit}
	err = read(body)
	if body.N <= 0 {
		return scope, fmt.Errorf("its answer is longer than %d MB", limit>>20)
	}
	if err != nil {
		return scope, fmt.Errorf("read its answer: %w", err)
	}
	return scope, nil
}

// anyActive reads whether any gauge isn't 0.
func anyActive(r io.Reader) (bool, error) {
	var found struct {
		Stats []struct {
			Value int64 `json:"value"`
		} `json:"stats"`
	}
	if err := json.NewDecoder(r).Decode(&found); err != nil {
		return false, err
	}
	for _, s := range found.Stats {
		if s.Value != 0 {
			return true, nil
		}
	}
	return false, nil
}

// clusterStatus has the fields of an Envoy's cluster that are read.
type clusterStatus struct {
	Name         string `json:"name"`
	HostStatuses []struct {
		Address struct {
			SocketAddress struct {
				Address   string `json:"address"`
				PortValue uint32 `json:"port_value"`
			} `json:"socket_address"`
		} `json:"address"`
		HealthStatus struct {
			FailedOutlierCheck bool `json:"failed_outlier_check"`
		} `json:"health_status"`
	} `json:"host_statuses"`
}

// ejected are the cluster's ejected hosts, if it is one of Autohealer's.
func (c *clusterStatus) ejected() (all []ejection.Host) {
	key, ours := outlier.ParseKey(c.Name)
	for _, h := range c.HostStatuses {
		if ours && h.HealthStatus.FailedOutlierCheck {
			at := h.Address.SocketAddress
			all = append(all, ejection.Host{Cluster: key, Address: net.JoinHostPort(at.Address, strconv.FormatUint(uint64(at.PortValue), 10))})
		}
	}
	return all
}

// readEjected decodes cluster by cluster, so that only one is in memory.
func readEjected(r io.Reader) (all []ejection.Host, err error) {
	d := json.NewDecoder(r)
	for _, want := range []json.Token{json.Delim('{'), "cluster_statuses", json.Delim('[')} {
		switch token, err := d.Token(); {
		case err != nil:
			return nil, err
		case token == json.Delim('}') && want == "cluster_statuses":
			return nil, nil // it has none
		case token != want:
			return nil, fmt.Errorf("%v where %v was expected", token, want)
		}
	}
	for d.More() {
		var c clusterStatus
		if err := d.Decode(&c); err != nil {
			return nil, err
		}
		if all = append(all, c.ejected()...); len(all) > maxEjected {
			return nil, fmt.Errorf("more than %d hosts are ejected", maxEjected)
		}
	}
	for range 2 { // the ends of the list and of the answer: a truncated answer is an error
		if _, err := d.Token(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
