package suite

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"golang.org/x/sys/unix"
)

// RunInOwnNetwork runs a suite's specs in a process with a network of its own, which has loopback's device and no other: programs that listen at
// fixed ports, at all addresses, meet nobody there and are met by nobody. Beside 127.0.0.1 the device has address, for EndpointSlices, which take
// none of loopback. All of it ends with the last process in it. Where such a network can't be made the test is skipped.
func RunInOwnNetwork(t *testing.T, description string, address netip.Addr) {
	if config, _ := ginkgo.GinkgoConfiguration(); config.DryRun {
		Run(t, description)
		return
	}
	if os.Getenv(partEnv) != "" {
		go endWithParent()
		if err := raiseLoopback(address); err != nil {
			t.Fatal(err)
		}
		Run(t, description)
		return
	}
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid := os.Geteuid(); uid != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	if err := mayStart(attributes); err != nil {
		t.Skipf("it needs a network of its own, and this user may make none: %v", err)
	}
	runParts(t, attributes, [][]string{nil})
}

// mayStart tries whether a process may be started so.
func mayStart(attributes *syscall.SysProcAttr) error {
	process, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Sys: attributes})
	if err != nil {
		return err
	}
	_, err = process.Wait()
	return err
}

// raiseLoopback switches the device of loopback on, and gives it one more address.
func raiseLoopback(address netip.Addr) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket for the device of loopback: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	device, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	device.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, device); err != nil {
		return fmt.Errorf("switch the device of loopback on: %w", err)
	}
	alias, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := alias.SetInet4Addr(address.AsSlice()); err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFADDR, alias); err != nil {
		return fmt.Errorf("give %s to the device of loopback: %w", address, err)
	}
	return nil
}
