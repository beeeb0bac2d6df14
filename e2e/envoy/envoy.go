package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli"
)

const (
	startTimeout = time.Minute
	poll         = 20 * time.Millisecond
)

// guarded runs Envoy for as long as the standard input is open, which only the test's process holds: when that dies, however
// it does, Envoy is killed and its directory removed. $1 is the directory, the rest the command.
const guarded = `
trap '' HUP INT TERM
dir=$1; shift
"$@" </dev/null &
pid=$!
echo $pid >"$dir/pid"
while read -r _; do :; done
kill -KILL $pid
wait $pid
rm -rf "$dir"
`

// Envoy is a running one.
type Envoy struct {
	t     testing.TB
	dir   string
	admin string // host:port
	guard *exec.Cmd
	alive io.Closer
	ports map[string]string // listener → host:port
}

// Start starts an Envoy and waits until its admin page answers. It ends with the test.
func Start(t testing.TB, o Options) *Envoy {
	t.Helper()
	binary := Binary(t)
	dir, err := os.MkdirTemp("", "autohealer-envoy-") //nolint:usetesting // the guard removes it, also when the test's process is killed
	if err != nil {
		t.Fatal(err)
	}
	e := &Envoy{t: t, dir: dir, ports: map[string]string{}}
	if err := e.configure(o); err != nil {
		_ = os.RemoveAll(dir)
		t.Fatal(err)
	}
	e.run(binary)
	t.Cleanup(e.Stop)
	e.waitUntilReady(o.Listeners)
	return e
}

// configure writes what envoy-bootstrap prints, with the test's listeners, or what the test has.
func (e *Envoy) configure(o Options) error {
	if o.Config != nil {
		return os.WriteFile(e.path("envoy.json"), o.Config, 0o600)
	}
	streams, _, out, problems := genericiooptions.NewTestIOStreams()
	args := append([]string{"envoy-bootstrap", "--admin-port=0", "--ejection-log-path=" + e.path("ejections.json")}, o.Bootstrap...)
	if code := cli.Run(context.Background(), &cli.App{IOStreams: streams}, args); code != 0 {
		return fmt.Errorf("envoy-bootstrap ends with %d: %s", code, problems)
	}
	text, err := yaml.YAMLToJSON(out.Bytes())
	if err != nil {
		return fmt.Errorf("read the bootstrap: %w", err)
	}
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(text, b); err != nil {
		return fmt.Errorf("read the bootstrap: %w", err)
	}
	for _, l := range o.Listeners {
		m, err := l.message()
		if err != nil {
			return err
		}
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, m)
	}
	if o.Change != nil {
		o.Change(b)
	}
	if text, err = protojson.Marshal(b); err != nil {
		return fmt.Errorf("write the bootstrap: %w", err)
	}
	return os.WriteFile(e.path("envoy.json"), text, 0o600)
}

func (e *Envoy) path(name string) string { return filepath.Join(e.dir, name) }

func (e *Envoy) run(binary string) {
	e.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	log, err := os.Create(e.path("log"))
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	// One worker: hosts take their turns, and counts of consecutive errors are exact.
	e.guard = exec.Command("/bin/sh", "-c", guarded, "autohealer-envoy", e.dir, binary, "--config-path", e.path("envoy.json"),
		"--admin-address-path", e.path("admin"), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "--drain-time-s", "1")
	e.guard.Stdin, e.guard.Stdout, e.guard.Stderr = read, log, log
	e.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of reach of the terminal's signals
	if err := e.guard.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.alive = write
}

// Stop kills Envoy and removes its files. A test that has failed says what Envoy logged.
func (e *Envoy) Stop() {
	if e.alive == nil {
		return
	}
	if e.t.Failed() {
		e.t.Logf("Envoy's log ends with:\n%s", e.LogTail())
	}
	_ = e.alive.Close()
	e.alive = nil
	if err := e.guard.Wait(); err != nil {
		if exit := new(exec.ExitError); !errors.As(err, &exit) {
			e.t.Errorf("stop Envoy: %v", err)
		}
	}
}

// LogTail gives the last 30 lines of Envoy's log.
func (e *Envoy) LogTail() string {
	text, err := os.ReadFile(e.path("log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// Addr is where a listener listens, host:port.
func (e *Envoy) Addr(listener string) string {
	e.t.Helper()
	if e.ports[listener] == "" {
		e.t.Fatalf("there is no listener %s", listener)
	}
	return e.ports[listener]
}

func (e *Envoy) waitUntilReady(listeners []Listener) {
	e.t.Helper()
	deadline := time.Now().Add(startTimeout)
	for {
		err := e.findPorts(listeners)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("Envoy isn't ready: %v; its log ends with:\n%s", err, e.LogTail())
		}
		time.Sleep(poll)
	}
}

// findPorts asks where the listeners are; Envoy has them once it has its first clusters.
func (e *Envoy) findPorts(listeners []Listener) error {
	address, err := os.ReadFile(e.path("admin"))
	if err != nil {
		return err
	}
	if e.admin = strings.TrimSpace(string(address)); e.admin == "" {
		return errors.New("no admin address yet")
	}
	var found struct {
		ListenerStatuses []struct {
			Name         string `json:"name"`
			LocalAddress struct {
				SocketAddress struct {
					Address   string `json:"address"`
					PortValue int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := e.adminJSON("/listeners?format=json", &found); err != nil {
		return err
	}
	for _, l := range found.ListenerStatuses {
		a := l.LocalAddress.SocketAddress
		e.ports[l.Name] = fmt.Sprintf("%s:%d", a.Address, a.PortValue)
	}
	for _, l := range listeners {
		if e.ports[l.Name] == "" || strings.HasSuffix(e.ports[l.Name], ":0") {
			return fmt.Errorf("listener %s isn't there", l.Name)
		}
	}
	// A port is bound before its worker listens there.
	started, err := e.adminText("/stats?filter=^listener_manager.workers_started$")
	if err == nil && !bytes.Contains(started, []byte("listener_manager.workers_started: 1")) {
		err = errors.New("its workers haven't started")
	}
	return err
}
