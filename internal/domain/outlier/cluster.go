package outlier

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// httpOptions is the name under which a cluster has its HTTP protocol.
const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// NewCluster makes Envoy's message for a cluster. Its endpoints have a name that changes with the cluster: Envoy replaces a changed
// cluster, and the new one warms only when it gets endpoints, which aren't sent again under a name that Envoy has already.
func NewCluster(a *Assignment) (*clusterv3.Cluster, error) {
	c := &clusterv3.Cluster{
		Name:                 a.Key.String(),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			// A changed cluster waits for its endpoints without a timeout, while the one before it stays in use: after a timeout it would
			// replace that one without endpoints.
			InitialFetchTimeout: durationpb.New(0),
		}},
	}
	if a.Policy.Detects() {
		c.OutlierDetection = detection(&a.Policy.Settings)
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{
			HealthyPanicThreshold: &typev3.Percent{Value: float64(a.Policy.Settings.PanicThreshold)},
		}
		if !a.Policy.Settings.Observe {
			// By default a host that is ejected within a second of another one gets requests until that second is over.
			c.CommonLbConfig.UpdateMergeWindow = durationpb.New(0)
			c.ConnectTimeout = duration(a.Policy.Settings.ConnectTimeout)
		}
	}
	if a.HTTP2 {
		if err := useHTTP2(c); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
	}
	// The encoding must be the same in all replicas of one version: a different one would have Envoy replace clusters that didn't change.
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	digest := sha256.Sum256(content)
	c.EdsClusterConfig.ServiceName = c.Name + "#" + hex.EncodeToString(digest[:8])
	return c, nil
}

// detection is Envoy's message for settings. Detection by success rates and gateway failures, which Envoy has on by default, is off: the
// API doesn't have it.
func detection(s *Settings) *clusterv3.OutlierDetection {
	none := wrapperspb.UInt32(0)
	d := &clusterv3.OutlierDetection{
		EnforcingSuccessRate: none, EnforcingConsecutiveGatewayFailure: none,
		Interval: duration(s.Interval), BaseEjectionTime: duration(s.Base), MaxEjectionTime: duration(s.Max), MaxEjectionTimeJitter: duration(s.Jitter),
		MaxEjectionPercent: wrap(s.EjectionPercent), SplitExternalLocalOriginErrors: s.Split,
	}
	switch {
	case s.ServerErrors == nil:
	case *s.ServerErrors == 0:
		d.EnforcingConsecutive_5Xx = none
	default:
		d.Consecutive_5Xx, d.EnforcingConsecutive_5Xx = wrap(s.ServerErrors), wrapperspb.UInt32(100)
	}
	if s.Split {
		d.EnforcingLocalOriginSuccessRate = none
		if s.LocalOriginThreshold() == 0 {
			d.EnforcingConsecutiveLocalOriginFailure = none
		} else {
			d.ConsecutiveLocalOriginFailure = wrap(s.LocalOriginFailures)
		}
	}
	if s.AlwaysEjectOneHost && s.MaxEjectionPercent() < 100 {
		d.AlwaysEjectOneHost = wrapperspb.Bool(true)
	}
	if s.Observe {
		d.EnforcingConsecutive_5Xx = none
		if s.Split {
			d.EnforcingConsecutiveLocalOriginFailure = none
		}
	}
	return d
}

func duration(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

func wrap(n *uint32) *wrapperspb.UInt32Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt32(*n)
}

// useHTTP2 has Envoy speak HTTP/2 with hosts that speak nothing else, as gRPC servers.
func useHTTP2(c *clusterv3.Cluster) error {
	options, err := anypb.New(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
		},
	}})
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptions: options}
	return err
}
