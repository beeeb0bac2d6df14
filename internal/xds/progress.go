package xds

import "slices"

// Proxies tells how far the connected proxies are with a cluster.
func (s *Server) Proxies(cluster string) Proxies {
	s.book.mu.Lock()
	p, invalid := s.book.published[cluster], s.book.invalid[cluster]
	var namespace string
	var services []string
	if p != nil {
		namespace, services = p.entry.namespace, p.services.SortedList()
	}
	s.book.mu.Unlock()

	var out Proxies
	if invalid != "" {
		out.Rejections = append(out.Rejections, Rejection{Message: invalid})
	}
	if p == nil {
		return out
	}
	rejected := s.clusters.count(cluster, namespace, &out)
	for _, service := range services {
		rejected = append(rejected, s.endpoints.rejections(service)...)
	}
	slices.SortFunc(rejected, func(a, b Rejection) int { return compare(a, b) })
	out.Rejections = append(out.Rejections, slices.Compact(rejected)...)
	return out
}

func compare(a, b Rejection) int {
	switch {
	case a.Proxy+"\x00"+a.Message < b.Proxy+"\x00"+b.Message:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// count adds the streams that may see a name, and gives those that rejected it.
func (t *table) count(name, namespace string, out *Proxies) []Rejection {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rejected []Rejection
	for f := range t.feeds {
		if !f.scope.allows(namespace) {
			continue
		}
		out.Connected++
		if message, no := f.rejected[name]; no {
			rejected = append(rejected, Rejection{Proxy: f.identity, Message: message})
		} else if f.settled(name) {
			out.Acked++
		}
	}
	return rejected
}

func (t *table) rejections(name string) []Rejection {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rejected []Rejection
	for f := range t.feeds {
		if message, no := f.rejected[name]; no {
			rejected = append(rejected, Rejection{Proxy: f.identity, Message: message})
		}
	}
	return rejected
}

// countRejected has the metric of what Envoys refuse now follow.
func (s *Server) countRejected() {
	rejectedNow.WithLabelValues("cluster").Set(float64(s.clusters.rejected()))
	rejectedNow.WithLabelValues("endpoints").Set(float64(s.endpoints.rejected()))
}

// rejected counts what streams refused last, each stream's for itself.
func (t *table) rejected() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.feeds {
		n += len(f.rejected)
	}
	return n
}
