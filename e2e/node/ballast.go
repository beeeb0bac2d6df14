//go:build linux

package node

import (
	"context"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

const kwokLabel = "autohealer.test/kwok"

// BesideKwok are kwok's flags in a cluster with a real node, which it would play otherwise.
var BesideKwok = []string{"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + kwokLabel + "=true"}

// AddBallast adds 100 nodes that kwok plays: with the real one alone, one sick node would be all nodes, and the limits would forbid to do
// anything to it.
func AddBallast(ctx context.Context, c *cluster.Cluster) ([]string, error) {
	return c.AddNodes(ctx, 100, cluster.NodeOptions{Prefix: "ballast", Labels: map[string]string{kwokLabel: "true"}})
}
