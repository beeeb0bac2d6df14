//go:build !linux

package pod

import "testing"

func TestPod(t *testing.T) { t.Skip("a real node needs Linux") }
