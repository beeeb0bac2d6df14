package outlier

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// http2 has Envoy speak HTTP/2 with hosts that speak nothing else, as gRPC servers.
var http2 = func() map[string]*anypb.Any {
	options, err := anypb.New(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
		},
	}})
	utilruntime.Must(err) // a constant
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}
}()

// NewCluster makes Envoy's message for a cluster. Its service_name is the xDS server's to set.
func NewCluster(a *Assignment) *clusterv3.Cluster {
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
		c.TypedExtensionProtocolOptions = http2
	}
	return c
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
