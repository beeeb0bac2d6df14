//go:build !linux

package kubelet

import "testing"

func TestKubelet(t *testing.T) { t.Skip("a real node needs Linux") }
