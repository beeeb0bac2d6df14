//go:build !linux

package pod

import (
	"testing"

	_ "github.com/onsi/ginkgo/v2" // for its flags, which make test-clients gives
)

func TestPod(t *testing.T) { t.Skip("a real node needs Linux") }
