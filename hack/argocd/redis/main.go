// Command argocd-redis is Argo CD's cache, in memory.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: argocd-redis ADDRESS")
		os.Exit(1)
	}
	redis := miniredis.NewMiniRedis()
	if err := redis.StartAddr(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Keys expire when it's told that time passed.
	for range time.Tick(time.Second) {
		redis.FastForward(time.Second)
	}
}
