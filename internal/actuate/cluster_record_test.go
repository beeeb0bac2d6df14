package actuate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

func clustersNamed(t *testing.T, names ...string) map[outlier.Key]outlier.Protocol {
	t.Helper()
	clusters := map[outlier.Key]outlier.Protocol{}
	for _, name := range names {
		key, ok := outlier.ParseKey(name)
		if !ok {
			t.Fatalf("%s is no cluster's name", name)
		}
		clusters[key] = outlier.AnyProtocol
	}
	return clusters
}

func both(a, b map[outlier.Key]outlier.Protocol) map[outlier.Key]outlier.Protocol {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func namesIn(t *testing.T, record *ClusterRecord) []string {
	t.Helper()
	clusters, err := record.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(clusters))
	for key, protocol := range clusters {
		names = append(names, strings.TrimSpace(key.String()+" "+string(protocol)))
	}
	slices.Sort(names)
	return names
}

func TestReplicasKeepOneRecordOfClusters(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	one := &ClusterRecord{Reader: c, Writer: c, Namespace: "autohealer-system"}
	two := &ClusterRecord{Reader: c, Writer: c, Namespace: "autohealer-system"}
	if got := namesIn(t, one); len(got) != 0 {
		t.Fatalf("before any was told there are %v", got)
	}
	web, mail, edge := clustersNamed(t, "shop/web/80"), clustersNamed(t, "shop/mail/25"), clustersNamed(t, "shop/web/80@httproute/checkout")
	for _, change := range []error{
		one.Change(t.Context(), nil, web),
		two.Change(t.Context(), web, both(web, edge)),
		two.Change(t.Context(), both(web, edge), both(mail, edge)),
	} {
		if change != nil {
			t.Fatal(change)
		}
	}
	if got := namesIn(t, one); !slices.Equal(got, []string{"shop/mail/25", "shop/web/80@httproute/checkout"}) {
		t.Errorf("it has %v", got)
	}

	stored := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: "autohealer-system", Name: "autohealer-envoy-clusters"}
	if err := c.Get(t.Context(), name, stored); err != nil {
		t.Fatal(err)
	}
	version := stored.ResourceVersion
	if err := one.Change(t.Context(), web, mail); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), name, stored); err != nil || stored.ResourceVersion != version {
		t.Errorf("nothing changed, and it was written (%v)", err)
	}
	if err := c.Delete(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	if err := one.Change(t.Context(), edge, both(web, edge)); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, two); !slices.Equal(got, []string{"shop/web/80", "shop/web/80@httproute/checkout"}) {
		t.Errorf("made anew it has %v, and not all that are told", got)
	}
}

func TestTheRecordTellsWhichClustersSpeakHTTP2(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	record := &ClusterRecord{Reader: c, Writer: c, Namespace: "autohealer-system"}
	grpc, web := clustersNamed(t, "shop/grpc/80@httpproxy/api"), clustersNamed(t, "shop/web/80")
	key := slices.Collect(maps.Keys(grpc))[0]
	for _, step := range []struct {
		protocol outlier.Protocol
		want     []string
	}{
		{outlier.H2C, []string{"shop/grpc/80@httpproxy/api h2c", "shop/web/80"}},
		{outlier.AnyProtocol, []string{"shop/grpc/80@httpproxy/api", "shop/web/80"}},
		{outlier.H2C, []string{"shop/grpc/80@httpproxy/api h2c", "shop/web/80"}},
	} {
		grpc[key] = step.protocol
		if err := record.Change(t.Context(), nil, both(web, grpc)); err != nil {
			t.Fatal(err)
		}
		if got := namesIn(t, record); !slices.Equal(got, step.want) {
			t.Errorf("it has %q, want %q", got, step.want)
		}
	}
	if err := record.Change(t.Context(), both(web, grpc), web); err != nil {
		t.Fatal(err)
	}
	stored, err := record.stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if lines, err := decompress(stored.BinaryData[clusterRecordKey]); err != nil || !maps.Equal(lines, map[string]bool{"shop/web/80": true}) {
		t.Errorf("what is left is %v (%v)", lines, err)
	}
}

func TestARecordThatCannotBeReadIsNotTakenForAnEmptyOne(t *testing.T) {
	broken := &corev1.ConfigMap{BinaryData: map[string][]byte{"clusters.gz": []byte("shop/web/80")}}
	broken.Namespace, broken.Name = "autohealer-system", "autohealer-envoy-clusters"
	c := fake.NewClientBuilder().WithObjects(broken).Build()
	record := &ClusterRecord{Reader: c, Writer: c, Namespace: "autohealer-system"}
	if _, err := record.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "ConfigMap autohealer-system/autohealer-envoy-clusters") {
		t.Errorf("got %v", err)
	}
}

func TestARecordOfVeryManyClustersFitsIntoOneObject(t *testing.T) {
	names := map[string]bool{}
	for i := range 50000 {
		names[fmt.Sprintf("team-%d/a-service-with-a-rather-long-name-%d/8080@httproute/a-route-with-a-long-name-%d", i%500, i, i%7)] = true
	}
	folded, err := compress(names)
	if err != nil {
		t.Fatal(err)
	}
	if len(folded) > 900<<10 {
		t.Errorf("50,000 clusters take %d bytes", len(folded))
	}
	if read, err := decompress(folded); err != nil || len(read) != len(names) {
		t.Errorf("%d of %d are read back (%v)", len(read), len(names), err)
	}
}
