package system

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/clustertest"
)

// The bounds that users are promised while another replica runs; see docs/reliability.md.
const (
	killBound  = time.Second      // a process is killed
	stallBound = 3 * time.Second  // a process is stopped, and its connections stay open
	cutBound   = 5 * time.Second  // a process is cut off from the bus or the API server
	shiftBound = time.Second      // replicas are added, ended and replaced
	busBound   = 20 * time.Second // one of three servers of the bus is down, or all restart
)

// shares are the metrics by which a replica reports that it does the part of the work on which the
// replacement of a pod depends.
var shares = map[string]string{
	"watcher": `millrace_watcher_active{kind="pods"} 1`,
	"writer":  `millrace_writer_active{controller="replicaset-controller"} 1`,
}

// active is the replica of a service that pods depend on at the moment. Reconcilers share the keys of a
// controller: the active one decides about the herd's ReplicaSet.
func (h *herd) active(t *testing.T, m *apart, name string) *service {
	t.Helper()
	if name != "reconcilers" {
		return m.active(t, name)
	}
	m.shared(t)
	before := m.decided(t)
	h.rest(t)
	var found *service
	within(t, patience, "one of the reconcilers decides", func() string {
		for p, n := range m.decided(t) {
			if n > before[p] {
				found = p
				return ""
			}
		}
		return "none has made a turn"
	})
	return found
}

// decided is how many acting turns each of the reconcilers has made for ReplicaSets.
func (m *apart) decided(t *testing.T) map[*service]float64 {
	t.Helper()
	turns := map[*service]float64{}
	for _, p := range m.services["reconcilers"] {
		turns[p] = p.series(t, `millrace_reconcilers_turns_total{controller="replicaset-controller",lane="write"}`)
	}
	return turns
}

// shared waits until every key of a controller belongs to one of the reconcilers.
func (m *apart) shared(t *testing.T) {
	t.Helper()
	within(t, patience, "the reconcilers share out the keys", func() string {
		sum := 0.0
		for _, p := range m.services["reconcilers"] {
			sum += p.series(t, `millrace_reconcilers_active{controller="replicaset-controller"}`)
		}
		if sum != 1 {
			return fmt.Sprintf("they have %v of them", sum)
		}
		return ""
	})
}

// series is the value of a series; 0 if a replica does not have it.
func (p *service) series(t *testing.T, series string) (value float64) {
	t.Helper()
	_, metrics := p.get(t, "/metrics")
	if _, rest, ok := strings.Cut(metrics, "\n"+series+" "); ok {
		text, _, _ := strings.Cut(rest, "\n")
		value, _ = strconv.ParseFloat(text, 64)
	}
	return value
}

// active is the replica of a service that has the work at the moment; of the reconcilers it is any one, once
// they have shared the keys.
func (m *apart) active(t *testing.T, name string) *service {
	t.Helper()
	if name == "reconcilers" {
		m.shared(t)
		return m.services[name][0]
	}
	var found []*service
	within(t, patience, "one "+name+" has the work", func() string {
		found = slices.DeleteFunc(slices.Clone(m.services[name]), func(p *service) bool {
			code, metrics := p.get(t, "/metrics")
			return code != http.StatusOK || !strings.Contains(metrics, shares[name]+"\n")
		})
		if len(found) != 1 {
			return "it falls to " + names(found)
		}
		return ""
	})
	return found[0]
}

func names(of []*service) string {
	var all []string
	for _, p := range of {
		all = append(all, p.Name)
	}
	return "[" + strings.Join(all, " ") + "]"
}

// forget removes a replica that has ended from the list.
func (m *apart) forget(name string, p *service) {
	m.services[name] = slices.DeleteFunc(m.services[name], func(other *service) bool { return other == p })
}

// herd is a Deployment whose pods are deleted and must be replaced.
type herd struct {
	*clustertest.Arena
	size, deleted int
	calm          time.Duration // the longest replacement of a pod without a fault
}

func (s *site) herd(t *testing.T, namespace string, size int) *herd {
	t.Helper()
	h := &herd{Arena: s.arena(t, namespace), size: size}
	must(t, h.Deploy(t.Context(), "web", first, size))
	until(t, h.Arena, clustertest.RolledOut("web", first, size))
	return h
}

// heal deletes a pod, and returns the time until its replacement.
func (h *herd) heal(t *testing.T) time.Duration {
	t.Helper()
	took, err := h.tryHeal(t.Context())
	must(t, err)
	return took
}

func (h *herd) tryHeal(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	created, begun := h.Created(), time.Now()
	if _, err := h.DeletePod(ctx); err != nil {
		return 0, err
	}
	h.deleted++
	at, err := h.Until(ctx, clustertest.Replaced(created, h.size))
	return at.Sub(begun), err
}

// expectNoneDoubled: each deleted pod has exactly one replacement, and at no time was there a pod too many.
func (h *herd) expectNoneDoubled(t *testing.T) {
	t.Helper()
	until(t, h.Arena, clustertest.RolledOut("web", first, h.size))
	if created, want := h.Created(), h.size+h.deleted; created != want {
		t.Errorf("%d pods were created, want %d: %d, and one for each of %d that were deleted", created, want, h.size, h.deleted)
	}
	if most := h.Most(); most > h.size {
		t.Errorf("%d pods at a time, want at most %d", most, h.size)
	}
}

// rest heals without a fault, to measure how long that takes on this machine.
func (h *herd) rest(t *testing.T) {
	t.Helper()
	h.calm = max(h.calm, h.heal(t))
}

// expectWithin compares times with the promise.
func (h *herd) expectWithin(t *testing.T, what string, took []time.Duration, promise time.Duration) {
	t.Helper()
	slices.Sort(took)
	t.Logf("%s: %d times, half of them within %v, the longest %v; while nothing was wrong at most %v",
		what, len(took), took[len(took)/2], took[max(0, len(took)-4):], h.calm)
	if last := took[len(took)-1]; last > promise {
		t.Errorf("%s: a deleted pod's place was empty for %v, want at most %v", what, last, promise)
	}
}

// TestFailover kills the active replica, as a crash would, and deletes a pod at once: another replica
// replaces the pod within a second.
func TestFailover(t *testing.T) {
	const kills = 20
	s := alone(t)
	m := s.separate(t, 3, s.credentials())
	h := s.herd(t, "failover", 3)
	for _, name := range serviceNames {
		t.Run(name, func(t *testing.T) {
			var took []time.Duration
			for range kills {
				for _, p := range m.services[name][:2] { // the third may still be starting
					p.ready(t)
				}
				victim := h.active(t, m, name)
				victim.kill(t)
				took = append(took, h.heal(t))
				m.forget(name, victim)
				m.add(name)
				h.rest(t)
			}
			h.expectWithin(t, name+" killed", took, killBound)
		})
	}
	h.expectNoneDoubled(t)
	clear(t, h.Arena)
	for _, name := range serviceNames {
		t.Run(name+" with turns in flight", func(t *testing.T) {
			m.playInCreate(t, "killed-"+name, func() (resume func()) {
				victim := m.active(t, name)
				victim.kill(t)
				m.forget(name, victim)
				return func() {}
			})
		})
	}
}

// TestStall stops the active replica, which then holds all its work in flight and looks alive to the bus, and
// lets it continue later.
func TestStall(t *testing.T) {
	s := alone(t)
	m := s.separate(t, 2, s.credentials())
	h := s.herd(t, "stall", 3)
	for _, name := range serviceNames {
		t.Run(name, func(t *testing.T) {
			var took []time.Duration
			for range 2 {
				resume := h.active(t, m, name).pause(t)
				took = append(took, h.heal(t), h.heal(t))
				resume()
				h.rest(t)
			}
			h.expectWithin(t, name+" stopped", took, stallBound)
		})
	}
	h.expectNoneDoubled(t)
	clear(t, h.Arena)
	for _, name := range serviceNames {
		t.Run(name+" with turns in flight", func(t *testing.T) {
			m.playInCreate(t, "stopped-"+name, func() (resume func()) { return m.active(t, name).pause(t) })
			m.active(t, name) // the stopped replica has continued
		})
	}
}

// playInCreate disturbs Millrace while many pods are being created, and ends the disturbance when other
// replicas have created the rest.
func (m *apart) playInCreate(t *testing.T, namespace string, disturb func() (resume func())) {
	t.Helper()
	const many = 80
	h := &herd{Arena: m.site.arena(t, namespace), size: many}
	must(t, h.Deploy(t.Context(), "web", first, many))
	until(t, h.Arena, clustertest.Replaced(many/8, 0))
	resume := disturb()
	begun := time.Now()
	took := until(t, h.Arena, clustertest.RolledOut("web", first, many)).Sub(begun)
	resume()
	t.Logf("disturbed when %d of %d pods had been made, all were there and reported after %v more", many/8, many, took)
	for range 3 {
		h.heal(t)
	}
	h.expectNoneDoubled(t)
	clear(t, h.Arena)
}

// pause stops a process with SIGSTOP; resume continues it.
func (p *service) pause(t *testing.T) (resume func()) {
	t.Helper()
	must(t, syscall.Kill(p.PID, syscall.SIGSTOP))
	resume = sync.OnceFunc(func() { _ = syscall.Kill(p.PID, syscall.SIGCONT) }) // it may have been killed
	t.Cleanup(resume)
	return resume
}

// wired is a replica that connects to the bus and the API server through wires.
type wired struct {
	*service
	wires map[string]*clustertest.Wire
}

func (m *apart) addWired(t *testing.T, name string) wired {
	t.Helper()
	w := wired{wires: map[string]*clustertest.Wire{}}
	host := strings.TrimPrefix(m.site.config.Host, "https://")
	for to, target := range map[string]string{"bus": m.nats, "API server": host} {
		wire, err := clustertest.LayWire(target)
		must(t, err)
		t.Cleanup(func() { _ = wire.Close() })
		w.wires[to] = wire
	}
	var more []string
	if m.kubeconfigs[name] != "" {
		more = []string{"--master=https://" + w.wires["API server"].Address()}
	}
	w.service = m.addAt(name, w.wires["bus"].Address(), more...)
	return w
}

// TestCutOff silently cuts the active replica off from the bus or from the API server, and restores the
// network later.
func TestCutOff(t *testing.T) {
	s := alone(t)
	m := s.separate(t, 0, s.credentials())
	var all []wired
	for range 3 {
		for _, name := range serviceNames {
			all = append(all, m.addWired(t, name))
		}
	}
	for _, w := range all {
		w.ready(t)
	}
	h := s.herd(t, "cut", 3)
	for _, c := range []struct{ name, from string }{
		{"watcher", "bus"}, {"reconcilers", "bus"}, {"writer", "bus"}, {"watcher", "API server"}, {"writer", "API server"},
	} {
		t.Run(c.name+" from "+c.from, func(t *testing.T) {
			h.rest(t)
			victim := h.active(t, m, c.name)
			at := slices.IndexFunc(all, func(w wired) bool { return w.service == victim })
			all[at].wires[c.from].Set(clustertest.WireCondition{Dead: true})
			took := []time.Duration{h.heal(t), h.heal(t), h.heal(t)}
			all[at].wires[c.from].Set(clustertest.WireCondition{})
			h.expectWithin(t, c.name+" cut off from the "+c.from, took, cutBound)
			all[at].ready(t) // a dead connection that is found later would be a second fault in the next case
		})
	}
	healed := time.Now()
	for _, w := range all { // replicas with dead connections notice
		w.ready(t)
	}
	t.Logf("with the network healed, all were ready after %v", time.Since(healed))
	for _, name := range serviceNames {
		m.active(t, name)
	}
	h.heal(t)
	h.expectNoneDoubled(t)
	clear(t, h.Arena)
}

// TestRescale replaces every replica of every service, and scales from one to three and back, while pods are
// created and deleted: no pod waits, and no effect is doubled.
func TestRescale(t *testing.T) {
	s := alone(t)
	m := s.separate(t, 1, s.credentials())
	h := s.herd(t, "rescale", 6)
	for range 3 {
		h.rest(t)
	}
	var took []time.Duration
	var failed error
	var churning sync.WaitGroup
	enough := make(chan struct{})
	churning.Go(func() {
		for failed == nil {
			select {
			case <-enough:
				return
			default:
			}
			var once time.Duration
			once, failed = h.tryHeal(t.Context())
			took = append(took, once)
		}
	})
	end := sync.OnceFunc(func() { close(enough); churning.Wait() })
	defer end()
	for _, name := range serviceNames {
		for range 2 {
			m.add(name)
		}
		for _, p := range m.services[name] {
			p.ready(t)
		}
		for _, p := range slices.Clone(m.services[name]) { // a rolling restart
			m.add(name).ready(t)
			p.stop(t)
			m.forget(name, p)
		}
		for _, p := range m.services[name][1:] {
			p.stop(t)
		}
		m.services[name] = m.services[name][:1]
	}
	end()
	must(t, failed)
	h.expectWithin(t, "replicas coming and going", took, shiftBound)
	h.expectNoneDoubled(t)
	clear(t, h.Arena)
}
