package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

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
