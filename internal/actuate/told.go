package actuate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

const (
	// toldName is the record's ConfigMap, and toldKey the entry in it: names of clusters, one a line, compressed.
	toldName, toldKey = "autohealer-envoy-clusters", "clusters.gz"
	// longestTold is what a record may unfold to, in bytes: some 160,000 clusters of the longest names.
	longestTold = 64 << 20
)

// ToldClusters is the record of clusters that Envoys were told of. A cluster whose policy was deleted stays, and after a restart
// nothing else would tell that it was ever there. All replicas keep the one record.
type ToldClusters struct {
	// Reader reads from the API server, past the cache.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
}

// protocolLine is the record's for a cluster that isn't told as most are, beside the line with its name alone: what knows only those
// reads the record as before.
func protocolLine(key outlier.Key, protocol outlier.Protocol) string {
	return string(protocol) + "/" + key.String()
}

// Read gives the clusters in the record, and how Envoys were told to speak with them; none when there is no record.
func (t *ToldClusters) Read(ctx context.Context) (map[outlier.Key]outlier.Protocol, error) {
	stored, err := t.stored(ctx)
	if err != nil {
		return nil, err
	}
	names, err := unfold(stored.BinaryData[toldKey])
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w; deleted, it is made anew of the clusters that policies hold for", t.Namespace, toldName, err)
	}
	clusters := make(map[outlier.Key]outlier.Protocol, len(names))
	for name := range names {
		key, ok := outlier.ParseKey(name)
		if !ok { // a newer version's may be other ones
			continue
		}
		clusters[key] = outlier.AnyProtocol
		if names[protocolLine(key, outlier.H2C)] {
			clusters[key] = outlier.H2C
		}
	}
	return clusters, nil
}

// Change has clusters added to the record, or their protocols changed, and others taken out of it. All are all that are told now, for a record that is gone or
// can't be read.
func (t *ToldClusters) Change(ctx context.Context, add map[outlier.Key]outlier.Protocol, remove []outlier.Key, all map[outlier.Key]outlier.Protocol) error {
	return unlessLost(func() error {
		stored, err := t.stored(ctx)
		if err != nil {
			return err
		}
		names, err := unfold(stored.BinaryData[toldKey])
		if err != nil || stored.BinaryData[toldKey] == nil {
			names, add = map[string]bool{}, all
		}
		before := maps.Clone(names)
		for _, key := range remove {
			delete(names, key.String())
			delete(names, protocolLine(key, outlier.H2C))
		}
		for key, protocol := range add {
			names[key.String()] = true
			delete(names, protocolLine(key, outlier.H2C))
			if protocol != outlier.AnyProtocol {
				names[protocolLine(key, protocol)] = true
			}
		}
		if err == nil && maps.Equal(names, before) {
			return nil // another replica has done it
		}
		return t.write(ctx, stored, names)
	})
}

func (t *ToldClusters) stored(ctx context.Context) (*corev1.ConfigMap, error) {
	stored, err := readConfigMap(ctx, t.Reader, t.Namespace, toldName)
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", t.Namespace, toldName, err)
	}
	return stored, nil
}

func (t *ToldClusters) write(ctx context.Context, stored *corev1.ConfigMap, names map[string]bool) error {
	folded, err := fold(names)
	if err != nil {
		return err
	}
	if stored.BinaryData == nil {
		stored.BinaryData = map[string][]byte{}
	}
	stored.BinaryData[toldKey] = folded
	if err := writeConfigMap(ctx, t.Writer, stored); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", t.Namespace, toldName, err)
	}
	return nil
}

func fold(names map[string]bool) ([]byte, error) {
	var folded bytes.Buffer
	w := gzip.NewWriter(&folded)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, err := io.WriteString(w, name+"\n"); err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return folded.Bytes(), nil
}

func unfold(folded []byte) (map[string]bool, error) {
	names := map[string]bool{}
	if len(folded) == 0 {
		return names, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(folded))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", toldKey, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, longestTold+1))
	if err == nil && len(text) > longestTold {
		err = errors.New("it is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", toldKey, err)
	}
	for name := range strings.Lines(string(text)) {
		names[strings.TrimSuffix(name, "\n")] = true
	}
	return names, nil
}
