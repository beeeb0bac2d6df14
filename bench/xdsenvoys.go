package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

// envoysRole plays as many Envoys as there are targets, until whoever started it has enough.
const envoysRole = "xds-envoys"

// greatestMessage that a client takes: all clusters at once.
const greatestMessage = 1 << 28

func playEnvoys(ctx context.Context, load probeLoad) (any, error) {
	for range load.Targets {
		conn, err := grpc.NewClient(load.Addresses[0], grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(greatestMessage)))
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		if _, err := xdsclient.Connect(ctx, conn, xdsclient.Options{}); err != nil {
			return nil, err
		}
	}
	return load, nil
}

// rawServer sends the same clusters to every client, encoded once, and again when it is told to.
type rawServer struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	response *discovery.DeltaDiscoveryResponse
	again    chan struct{}
	first    sync.WaitGroup
	second   sync.WaitGroup
}

// DeltaAggregatedResources asks for nothing but acknowledgements.
func (s *rawServer) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for _, round := range []*sync.WaitGroup{&s.first, &s.second} {
		if round == &s.second {
			<-s.again
		}
		if err := stream.Send(s.response); err != nil {
			return err
		}
		for acked := false; !acked; {
			r, err := stream.Recv()
			if err != nil {
				return err
			}
			acked = r.GetTypeUrl() == resource.ClusterType && r.GetResponseNonce() != ""
		}
		round.Done()
	}
	<-stream.Context().Done()
	return nil
}

// sendRaw is how long it takes to encode the clusters, and to send them once to as many Envoys until all have accepted them.
func sendRaw(ctx context.Context, clusters map[string]*clusterv3.Cluster) (took time.Duration, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	s := &rawServer{again: make(chan struct{})}
	if s.response, err = encodeRaw(clusters); err != nil {
		return 0, err
	}
	s.first.Add(xdsClients)
	s.second.Add(xdsClients)
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if stopped := <-served; !errors.Is(stopped, grpc.ErrServerStopped) {
			err = errors.Join(err, stopped)
		}
	}()
	envoys, input, _, err := startServing(ctx, envoysRole, probeLoad{Addresses: []string{listener.Addr().String()}, Targets: xdsClients})
	if err != nil {
		return 0, err
	}
	defer func(input io.Closer) { err = errors.Join(err, input.Close(), envoys.Wait()) }(input)
	s.first.Wait()
	began := time.Now()
	if s.response, err = encodeRaw(clusters); err != nil {
		return 0, err
	}
	close(s.again)
	s.second.Wait()
	return time.Since(began), nil
}

func encodeRaw(clusters map[string]*clusterv3.Cluster) (*discovery.DeltaDiscoveryResponse, error) {
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: resource.ClusterType, Nonce: "1"}
	for name, cluster := range clusters {
		body, err := proto.Marshal(cluster)
		if err != nil {
			return nil, fmt.Errorf("encode a cluster: %w", err)
		}
		r.Resources = append(r.Resources, &discovery.Resource{Name: name, Version: "1", Resource: &anypb.Any{TypeUrl: resource.ClusterType, Value: body}})
	}
	return r, nil
}
