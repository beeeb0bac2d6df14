package probeconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/resourcestack/autohealer/bench/testbed"
)

// probeBare makes the same requests at the same pace with the standard library alone: what they cost at least.
func probeBare(ctx context.Context, load load) (any, error) {
	const workers = 64
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(load.CA)
	var clients []*http.Client
	for range 2 * load.Targets {
		clients = append(clients, &http.Client{Timeout: load.Interval / 2, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, DisableCompression: true,
		}})
	}
	var mu sync.Mutex
	var requests, failures int
	next := make(chan int)
	for range workers {
		go func() {
			for n := range next {
				client := clients[n%len(clients)]
				if (n+n/len(clients))%load.FreshEvery == 0 {
					client.CloseIdleConnections()
				}
				err := get(ctx, client, "https://"+load.address(n%len(clients)/2)+"/version")
				mu.Lock()
				requests++
				if err != nil {
					failures++
				}
				mu.Unlock()
			}
		}()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(next)
		began := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			_ = testbed.Pause(ctx, time.Until(began.Add(load.Interval*time.Duration(n)/time.Duration(len(clients)))))
			next <- n
		}
	}()
	counts := func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		return requests, failures
	}
	return load.measure(ctx, counts, func() (uint64, uint64) { return 0, 0 })
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
