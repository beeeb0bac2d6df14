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
	// clusterRecordName is the record's ConfigMap, and clusterRecordKey the entry in it: names of clusters, one a line, compressed.
	clusterRecordName, clusterRecordKey = "autohealer-envoy-clusters", "clusters.gz"
	// maxClusterRecord is what a record may decompress to, in bytes: some 160,000 clusters of the longest names.
	maxClusterRecord = 64 << 20
)

// ClusterRecord is the record of clusters that were sent to Envoys. A cluster whose policy was deleted stays, and after a restart
// nothing else would tell that it was ever there. All replicas keep the one record.
type ClusterRecord struct {
	// Reader reads from the API server, past the cache.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
}

// protocolLine is the record's for a cluster that isn't served as most are, beside the line with its name alone: what knows only those
// reads the record as before.
func protocolLine(key outlier.Key, protocol outlier.Protocol) string {
	return string(protocol) + "/" + key.String()
}

// Read gives the clusters in the record, and with which protocol Envoys were to speak to them; none when there is no record.
func (t *ClusterRecord) Read(ctx context.Context) (map[outlier.Key]outlier.Protocol, error) {
	stored, err := t.stored(ctx)
	if err != nil {
		return nil, err
	}
	names, err := decompress(stored.BinaryData[clusterRecordKey])
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w; delete the ConfigMap, and Autohealer creates it again from the clusters that policies hold for", t.Namespace, clusterRecordName, err)
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

// Change has the record say what is served now, where that differs from what was served when this replica wrote it before: others' clusters stay.
// A record that is gone or can't be read gets all that is served now.
func (t *ClusterRecord) Change(ctx context.Context, before, now map[outlier.Key]outlier.Protocol) error {
	return retryOnConflict(func() error {
		stored, err := t.stored(ctx)
		if err != nil {
			return err
		}
		had := before
		names, err := decompress(stored.BinaryData[clusterRecordKey])
		if err != nil || stored.BinaryData[clusterRecordKey] == nil {
			names, had = map[string]bool{}, nil
		}
		was := maps.Clone(names)
		for key := range had {
			if _, still := now[key]; !still {
				delete(names, key.String())
				delete(names, protocolLine(key, outlier.H2C))
			}
		}
		for key, protocol := range now {
			if recorded, is := had[key]; is && recorded == protocol {
				continue
			}
			names[key.String()] = true
			delete(names, protocolLine(key, outlier.H2C))
			if protocol != outlier.AnyProtocol {
				names[protocolLine(key, protocol)] = true
			}
		}
		if err == nil && maps.Equal(names, was) {
			return nil // another replica has done it
		}
		return t.write(ctx, stored, names)
	})
}

func (t *ClusterRecord) stored(ctx context.Context) (*corev1.ConfigMap, error) {
	stored, err := readConfigMap(ctx, t.Reader, t.Namespace, clusterRecordName)
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", t.Namespace, clusterRecordName, err)
	}
	return stored, nil
}

func (t *ClusterRecord) write(ctx context.Context, stored *corev1.ConfigMap, names map[string]bool) error {
	folded, err := compress(names)
	if err != nil {
		return err
	}
	if stored.BinaryData == nil {
		stored.BinaryData = map[string][]byte{}
	}
	stored.BinaryData[clusterRecordKey] = folded
	if err := writeConfigMap(ctx, t.Writer, stored); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", t.Namespace, clusterRecordName, err)
	}
	return nil
}

func compress(names map[string]bool) ([]byte, error) {
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, err := io.WriteString(w, name+"\n"); err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return compressed.Bytes(), nil
}

func decompress(folded []byte) (map[string]bool, error) {
	names := map[string]bool{}
	if len(folded) == 0 {
		return names, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(folded))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", clusterRecordKey, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxClusterRecord+1))
	if err == nil && len(text) > maxClusterRecord {
		err = errors.New("it is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", clusterRecordKey, err)
	}
	for name := range strings.Lines(string(text)) {
		names[strings.TrimSuffix(name, "\n")] = true
	}
	return names, nil
}
