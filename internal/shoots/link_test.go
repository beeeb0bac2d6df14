package shoots

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"
)

func TestAConnectionThatIsLostAgainAndAgainGivesTheSameError(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	lost := func(port int) error {
		from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: port}
		return &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: &net.OpError{Op: "read", Net: "tcp", Source: from, Addr: at, Err: syscall.ECONNRESET}}
	}
	refused := fmt.Errorf("ask: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: syscall.ECONNREFUSED})
	for err, want := range map[error]string{
		lost(40001):      "read tcp 192.0.2.1:443: connection reset by peer",
		lost(40002):      "read tcp 192.0.2.1:443: connection reset by peer",
		refused:          "ask: dial tcp 192.0.2.1:443: connection refused",
		errors.New("no"): "no",
	} {
		if got := steady(err).Error(); got != want {
			t.Errorf("it is %s", got)
		}
	}
}
