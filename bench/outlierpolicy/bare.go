package outlierpolicy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/internal/xds"
)

// bareServer sends what it is given to all Envoys, and knows nothing of what they have.
type bareServer struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	streams chan chan sending
	all     []chan sending
	// envoys plays them.
	envoys *testbed.Process
}

// sending is sent to each Envoy, each response once the one before it is accepted.
type sending struct {
	responses []*discovery.DeltaDiscoveryResponse
	accepted  *sync.WaitGroup
}

// DeltaAggregatedResources asks for nothing but acknowledgements.
func (s *bareServer) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	rounds := make(chan sending)
	s.streams <- rounds
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case round := <-rounds:
			for _, response := range round.responses {
				if err := sendAndWait(stream, response); err != nil {
					return err
				}
			}
			round.accepted.Done()
		}
	}
}

func sendAndWait(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, response *discovery.DeltaDiscoveryResponse) error {
	if err := stream.Send(response); err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil || r.GetTypeUrl() == response.GetTypeUrl() && r.GetResponseNonce() != "" {
			return err
		}
	}
}

// startBare connects as many Envoys as ours has, until it is stopped.
func startBare(ctx context.Context) (_ *bareServer, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	s := &bareServer{streams: make(chan chan sending)}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if s.envoys, err = startEnvoys(ctx, listener.Addr().String()); err != nil {
		server.Stop()
		return nil, nil, err
	}
	for range envoyCount {
		s.all = append(s.all, <-s.streams)
	}
	return s, func() error {
		server.Stop()
		err := s.envoys.End()
		if stopped := <-served; !errors.Is(stopped, grpc.ErrServerStopped) {
			err = errors.Join(err, stopped)
		}
		return err
	}, nil
}

// send is done when all Envoys have accepted all of it.
func (s *bareServer) send(responses ...*discovery.DeltaDiscoveryResponse) {
	var accepted sync.WaitGroup
	accepted.Add(len(s.all))
	for _, rounds := range s.all {
		rounds <- sending{responses, &accepted}
	}
	accepted.Wait()
}

func encode[T proto.Message](typeURL string, messages map[string]T) (*discovery.DeltaDiscoveryResponse, error) {
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: "1"}
	for name, message := range messages {
		body, err := proto.Marshal(message)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		r.Resources = append(r.Resources, &discovery.Resource{Name: name, Version: "1", Resource: &anypb.Any{TypeUrl: typeURL, Value: body}})
	}
	return r, nil
}

// bareEdit is a changed cluster with its endpoints.
func bareEdit(name string, i int) ([]*discovery.DeltaDiscoveryResponse, error) {
	cluster := clusterOf(name, uint32(100+i))
	cluster.EdsClusterConfig.ServiceName = fmt.Sprintf("%s#%d", name, i)
	clusters, err := encode(resource.ClusterType, map[string]*clusterv3.Cluster{name: cluster})
	if err != nil {
		return nil, err
	}
	endpoints, err := bareEndpoints(cluster.GetEdsClusterConfig().GetServiceName(), i)
	return append([]*discovery.DeltaDiscoveryResponse{clusters}, endpoints...), err
}

func bareEndpoints(service string, i int) ([]*discovery.DeltaDiscoveryResponse, error) {
	endpoints := endpointsOf(i)
	endpoints.ClusterName = service
	r, err := encode(resource.EndpointType, map[string]*endpointv3.ClusterLoadAssignment{service: endpoints})
	return []*discovery.DeltaDiscoveryResponse{r}, err
}

// bareGlobal are all clusters under new names for their endpoints, and those.
func bareGlobal(of xds.Snapshot, round int) ([]*discovery.DeltaDiscoveryResponse, error) {
	clusters, endpoints := map[string]*clusterv3.Cluster{}, map[string]*endpointv3.ClusterLoadAssignment{}
	for name, cluster := range of.Clusters {
		service := fmt.Sprintf("%s#global-%d", name, round)
		named, of := proto.CloneOf(cluster.Message), proto.CloneOf(cluster.Endpoints)
		named.EdsClusterConfig.ServiceName, of.ClusterName = service, service
		clusters[name], endpoints[service] = named, of
	}
	first, err := encode(resource.ClusterType, clusters)
	if err != nil {
		return nil, err
	}
	second, err := encode(resource.EndpointType, endpoints)
	return []*discovery.DeltaDiscoveryResponse{first, second}, err
}
