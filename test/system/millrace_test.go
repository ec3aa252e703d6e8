package system

import (
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/sign"
)

var exportTo = flag.String("system.export", "", "directory to which tests export what was recorded")

// together is all of Millrace in one process.
type together struct {
	*service
	nats    string
	dataDir string
}

// run starts all of Millrace in one process, on new streams.
func (s *site) run(t *testing.T, args ...string) *together {
	t.Helper()
	m := &together{nats: loopback(t), dataDir: t.TempDir()}
	m.start(t, s, args...)
	return m
}

func (m *together) flags(s *site) []string {
	return []string{
		"run", "--kubeconfig=" + s.Kubeconfig(clustertest.Millrace), "--root-ca-file=" + s.RootCAFile(),
		"--data-dir=" + m.dataDir, "--nats-listen=" + m.nats,
	}
}

// again restarts the process on the same streams.
func (m *together) again(t *testing.T, s *site, args ...string) {
	t.Helper()
	m.start(t, s, args...)
}

func (m *together) start(t *testing.T, s *site, args ...string) {
	t.Helper()
	started := s.start(t, "run", append(m.flags(s), args...)...)
	m.service = started
	s.export(t, m.nats, func() bool { return m.service == started })
}

// apart is Millrace as one process for each service, on a bus of their own.
type apart struct {
	site    *site
	nats    string
	dataDir string
	bus     *service
	// services are the running replicas by the service's name, and kubeconfigs the kubeconfigs that they are
	// started with.
	services    map[string][]*service
	kubeconfigs map[string]string
	keys        sign.Provided
	// owner is the test at whose end everything stops; its subtests replace processes.
	owner *testing.T
}

// otherWatcher is the second watcher of the manifests, which may read Secrets.
const otherWatcher = "watcher-other"

var serviceNames = []string{"watcher", "reconcilers", "writer"}

// credentials are the kubeconfigs of the services that have one.
func (s *site) credentials() map[string]string {
	return map[string]string{"watcher": s.Kubeconfig(clustertest.Watcher), "writer": s.Kubeconfig(clustertest.Writer)}
}

// separate starts a bus and replicas of each service.
func (s *site) separate(t *testing.T, replicas int, kubeconfigs map[string]string) *apart {
	t.Helper()
	return s.separateFrom(t, replicas, kubeconfigs, time.Now())
}

// separateFrom is separate with services that require signatures from a time on.
func (s *site) separateFrom(t *testing.T, replicas int, kubeconfigs map[string]string, signed time.Time) *apart {
	t.Helper()
	m := s.unstarted(t, kubeconfigs, signed)
	m.startBus()
	names := slices.Clone(serviceNames)
	if kubeconfigs[otherWatcher] != "" {
		names = append(names, otherWatcher)
	}
	for range replicas {
		for _, name := range names {
			m.add(name)
		}
	}
	for _, name := range names {
		for _, replica := range m.services[name] {
			replica.ready(t)
		}
	}
	return m
}

// unstarted is separateFrom without any process yet.
func (s *site) unstarted(t *testing.T, kubeconfigs map[string]string, signed time.Time) *apart {
	t.Helper()
	keys, err := sign.ProvideFrom(t.TempDir(), signed)
	must(t, err)
	return &apart{
		site: s, nats: loopback(t), dataDir: t.TempDir(), owner: t,
		services: map[string][]*service{}, kubeconfigs: kubeconfigs, keys: keys,
	}
}

func (m *apart) startBus() {
	m.owner.Helper()
	args := []string{"bus", "--data-dir=" + m.dataDir, "--nats-listen=" + m.nats}
	if !m.site.keyless { // the last release admits every client, and has no such flag
		args = append(args, "--insecure-bus")
	}
	m.bus = m.site.start(m.owner, "bus", args...)
	bus := m.bus
	m.site.export(m.owner, m.nats, func() bool { return m.bus == bus })
}

// export exports the record of a test at its end, unless another process has the bus by then. A test may
// leave a bus that cannot be read.
func (s *site) export(t *testing.T, nats string, last func() bool) {
	if *exportTo == "" {
		return
	}
	t.Cleanup(func() {
		file := filepath.Join(*exportTo, "system-"+strings.ReplaceAll(t.Name(), "/", "-")+".millrace")
		if !last() {
			return
		}
		if out, err := exec.Command(s.binary, "export", file, "--overwrite", "--nats-url=nats://"+nats).CombinedOutput(); err != nil {
			t.Logf("the record is not exported: %v\n%s", err, out)
		}
	})
}

// add starts a replica of a service without waiting for it.
func (m *apart) add(name string) *service { return m.addAt(name, m.nats) }

// addAt is add for a replica that connects to the bus at an address of its own.
func (m *apart) addAt(name, nats string, more ...string) *service {
	m.owner.Helper()
	program := name
	switch {
	case name == otherWatcher:
		program, more = "watcher", append(more, "--scope=other")
	case name == "watcher" && m.kubeconfigs[otherWatcher] != "":
		more = append(more, "--scope=built-in")
	}
	args := append([]string{program, "--nats-url=nats://" + nats, "--root-ca-file=" + m.site.RootCAFile()}, more...)
	if kubeconfig := m.kubeconfigs[name]; kubeconfig != "" { // the reconcilers have none
		args = append(args, "--kubeconfig="+kubeconfig)
	}
	if !m.site.keyless {
		args = append(args, m.keys.Flags(name)...)
	}
	replica := m.site.launch(m.owner, name, args...)
	m.services[name] = append(m.services[name], replica)
	return replica
}
