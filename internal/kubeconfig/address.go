package kubeconfig

import (
	"net/netip"
	"strings"
	"syscall"
)

// Policy says where connections may go.
type Policy struct {
	// AllowLoopback allows servers on this machine, for tests and local clusters. In a cluster it would let a tenant reach
	// what listens inside Autohealer's pod.
	AllowLoopback bool
}

// metadataServices are the addresses outside the link-local ranges where clouds serve instance credentials.
var metadataServices = []netip.Addr{
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS, EKS Pod Identity
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
	netip.MustParseAddr("fd00:42::42"),     // Scaleway
}

// embeddedIPv4 are the ranges of IPv6 addresses that stand for an IPv4 address, which begins at this byte.
var embeddedIPv4 = map[netip.Prefix]int{
	netip.MustParsePrefix("::/96"):          12, // IPv4-compatible (RFC 4291), the unspecified and loopback addresses included
	netip.MustParsePrefix("64:ff9b::/96"):   12, // NAT64 (RFC 6052)
	netip.MustParsePrefix("64:ff9b:1::/48"): 12, // NAT64 for local use (RFC 8215), in its longest form
	netip.MustParsePrefix("2002::/16"):      2,  // 6to4 (RFC 3056)
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // Linux takes 0.0.0.0 for the loopback address
	broadcast   = netip.MustParseAddr("255.255.255.255")
)

// Check judges an address as it is dialled, after names were resolved. It returns Loopback, ForbiddenAddress or nil.
func (p Policy) Check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	if addr.IsLoopback() {
		if p.AllowLoopback {
			return nil
		}
		return Loopback
	}
	if forbidden(addr) {
		return ForbiddenAddress
	}
	for prefix, at := range embeddedIPv4 {
		if prefix.Contains(addr) {
			bytes := addr.As16()
			return p.Check(netip.AddrFrom4([4]byte(bytes[at : at+4])))
		}
	}
	return nil
}

func forbidden(addr netip.Addr) bool {
	for _, known := range metadataServices {
		if addr == known {
			return true
		}
	}
	return !addr.IsValid() || addr.IsUnspecified() || addr.IsLinkLocalUnicast() || addr.IsMulticast() ||
		thisNetwork.Contains(addr) || addr == broadcast
}

// Control is a [net.Dialer]'s: it sees every address that is dialled, so that a name which resolves to another address
// the second time gains nothing.
func (p Policy) Control(network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return ForbiddenAddress
	}
	return p.Check(to.Addr())
}
