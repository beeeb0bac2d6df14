package kubeconfig

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestWhichAddressesAreDialled(t *testing.T) {
	tests := []struct {
		addr string
		want error
	}{
		{"10.0.0.1", nil},
		{"192.168.1.1", nil},
		{"100.64.0.1", nil},
		{"203.0.113.1", nil},
		{"240.0.0.1", nil}, // some clusters use class E
		{"2001:db8::1", nil},
		{"fd00::1", nil},
		{"64:ff9b::10.0.0.1", nil},
		{"127.0.0.1", Loopback},
		{"127.8.9.10", Loopback},
		{"::1", Loopback},
		{"::ffff:127.0.0.1", Loopback},
		{"64:ff9b::127.0.0.1", Loopback},
		{"::127.0.0.1", Loopback},
		{"169.254.169.254", ForbiddenAddress},
		{"169.254.1.1", ForbiddenAddress},
		{"::ffff:169.254.169.254", ForbiddenAddress},
		{"64:ff9b::169.254.169.254", ForbiddenAddress},
		{"64:ff9b:1::169.254.169.254", ForbiddenAddress},
		{"2002:a9fe:a9fe::1", ForbiddenAddress},
		{"fe80::1", ForbiddenAddress},
		{"fe80::1%eth0", ForbiddenAddress},
		{"fd00:ec2::254", ForbiddenAddress},
		{"fd20:ce::254", ForbiddenAddress},
		{"168.63.129.16", ForbiddenAddress},
		{"100.100.100.200", ForbiddenAddress},
		{"0.0.0.0", ForbiddenAddress},
		{"0.1.2.3", ForbiddenAddress},
		{"::", ForbiddenAddress},
		{"::2", ForbiddenAddress},
		{"224.0.0.1", ForbiddenAddress},
		{"ff02::1", ForbiddenAddress},
		{"255.255.255.255", ForbiddenAddress},
	}
	for _, tt := range tests {
		addr := netip.MustParseAddr(tt.addr)
		if got := (Policy{}).Check(addr); !errors.Is(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.addr, got, tt.want)
		}
		want := tt.want
		if errors.Is(want, Loopback) {
			want = nil
		}
		if got := (Policy{AllowLoopback: true}).Check(addr); !errors.Is(got, want) {
			t.Errorf("%s with loopback allowed: %v, want %v", tt.addr, got, want)
		}
	}
	if got := (Policy{AllowLoopback: true}).Check(netip.Addr{}); !errors.Is(got, ForbiddenAddress) {
		t.Errorf("no address: %v", got)
	}
}

func TestADialIsJudgedByTheAddressThatANameResolvesTo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	access, err := Policy{}.Parse([]byte(edited(t, "api.shoot.example:6443", "localhost:"+port)))
	if err != nil {
		t.Fatalf("a name was refused before it was resolved: %v", err)
	}
	conn, err := access.Transport(Policy{}, net.Dialer{}).DialContext(context.Background(), "tcp", access.Server())
	if conn != nil || !errors.Is(err, Loopback) {
		t.Errorf("dialled, %v", err)
	}
	conn, err = access.Transport(Policy{AllowLoopback: true}, net.Dialer{}).DialContext(context.Background(), "tcp", access.Server())
	if err != nil {
		t.Fatalf("not dialled though allowed: %v", err)
	}
	_ = conn.Close()
}

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://10.0.0.1:3128")
	access, err := Policy{}.Parse([]byte(usable))
	if err != nil {
		t.Fatal(err)
	}
	if access.Transport(Policy{}, net.Dialer{}).Proxy != nil {
		t.Error("a proxy may be used")
	}
}
