package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/internal/check/ledger"
	"github.com/millrace/millrace/cmd/internal/fault"
	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/cmd/internal/wire"
	"github.com/millrace/millrace/pkg/events/sign"
)

// size is how many servers the bus has, and how many replicas each service.
type size struct{ buses, replicas int }

// plant is everything that runs: a control plane, the servers of the bus, and the services, each of which
// connects through wires of its own.
type plant struct {
	size    size
	dir     string
	binary  string // the millrace program
	audit   string // the API server's audit log
	cluster *localcluster.Cluster

	buses    []busServer
	slots    []*slot // in the order in which they are started
	wires    map[string][]*wire.Wire
	fronts   map[string]*wire.Front
	keeping  sync.WaitGroup
	letGo    context.CancelFunc
	failures chan error
}

// busServer is where a server of the bus listens.
type busServer struct{ name, clients, others string }

// services are the processes of Millrace besides the bus.
var services = []string{"watcher", "reconcilers", "writer"}

// build starts a control plane, and prepares the slots and wires of all other processes.
func build(ctx context.Context, dir string, s size, output io.Writer) (*plant, error) {
	p := &plant{
		size: s, dir: dir, binary: filepath.Join(dir, "millrace"), audit: filepath.Join(dir, "audit.log"),
		wires: map[string][]*wire.Wire{}, fronts: map[string]*wire.Front{}, failures: make(chan error, 64),
	}
	if err := compile(ctx, p.binary); err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(ledger.AuditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	var err error
	if p.cluster, err = localcluster.Start(ctx, localcluster.Options{
		Dir: filepath.Join(dir, "cluster"), Nodes: 4, Lean: true, Output: output,
		APIServerArgs: []string{
			"--audit-policy-file=" + policy, "--audit-log-path=" + p.audit, "--audit-log-maxsize=100000",
			"--etcd-compaction-interval=0", // the checker reads the whole history in the end
		},
	}); err != nil {
		return nil, err
	}
	if err := p.lay(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// lay chooses addresses, creates the wires and fills the slots.
func (p *plant) lay() error {
	for i := range p.size.buses {
		b := busServer{name: fmt.Sprintf("bus-%d", i+1)}
		for _, address := range []*string{&b.clients, &b.others} {
			var err error
			if *address, err = freeAddress(); err != nil {
				return err
			}
		}
		p.buses = append(p.buses, b)
	}
	for _, b := range p.buses {
		if err := p.fill(b.name, p.busArgs(b)); err != nil {
			return err
		}
	}
	for i := range p.size.replicas {
		for _, service := range services {
			name := fmt.Sprintf("%s-%d", service, i+1)
			args, err := p.serviceArgs(service, name)
			if err != nil {
				return err
			}
			if err := p.fill(name, args); err != nil {
				return err
			}
		}
	}
	return nil
}

// freeAddress returns an address on which no server listens, and reserves it: a process that is down for a
// while must find its address free when it starts again.
func freeAddress() (string, error) {
	port, err := localcluster.FreePort()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// fill makes the slot of a process of Millrace.
func (p *plant) fill(name string, args []string) error {
	health, err := freeAddress()
	if err != nil {
		return err
	}
	args = append(args, "--health-address="+health)
	p.slots = append(p.slots, &slot{name: name, ours: true, ready: "http://" + health + "/readyz", start: func(life int) (*subprocess.Process, error) {
		return p.cluster.Run(fmt.Sprintf("%s.%d", name, life), p.binary, args...)
	}})
	return nil
}

func (p *plant) busArgs(b busServer) []string {
	args := []string{"bus", "--data-dir=" + filepath.Join(p.dir, "data", b.name), "--nats-listen=" + b.clients, "--insecure-bus"}
	if p.size.buses == 1 {
		return args
	}
	var routes []string
	for _, other := range p.buses {
		routes = append(routes, other.others)
	}
	// A client that learned the other servers' addresses would bypass the wires.
	return append(args, "--name="+b.name, "--cluster-listen="+b.others, "--routes="+strings.Join(routes, ","), "--no-advertise")
}

// serviceArgs creates the wires of a service, and returns its command line.
func (p *plant) serviceArgs(service, name string) ([]string, error) {
	var addresses []string
	for _, b := range p.buses {
		w, err := p.wire(name+">bus", b.clients)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, "nats://"+w.Address())
	}
	args := []string{
		service, "--nats-url=" + strings.Join(addresses, ","), "--root-ca-file=" + p.cluster.RootCAFile(),
		fmt.Sprintf("--stream-replicas=%d", p.size.buses),
	}
	keys, err := sign.Provide(filepath.Join(p.cluster.Dir, "signing"))
	if err != nil {
		return nil, err
	}
	args = append(args, keys.Flags(service)...)
	server := strings.TrimPrefix(p.cluster.Server, "https://")
	user := localcluster.Watcher
	switch service {
	case "reconcilers":
		return args, nil
	case "writer":
		user = localcluster.Writer
		front, err := p.front(name)
		if err != nil {
			return nil, err
		}
		server = front.Address()
	}
	w, err := p.wire(name+">api", server)
	if err != nil {
		return nil, err
	}
	return append(args, "--kubeconfig="+p.cluster.Kubeconfig(user), "--master=https://"+w.Address()), nil
}

func (p *plant) wire(name, target string) (*wire.Wire, error) {
	w, err := wire.New(target)
	if err == nil {
		p.wires[name] = append(p.wires[name], w)
	}
	return w, err
}

// front is a proxy between a writer and the API server. To the writer it looks like the API server, and to
// the API server like the writer.
func (p *plant) front(name string) (*wire.Front, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.cluster.Kubeconfig(localcluster.Writer))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("open a front for %s: %w", name, err)
	}
	certificate, err := tls.LoadX509KeyPair(p.cluster.ServingCertificate())
	if err != nil {
		return nil, fmt.Errorf("open a front for %s: %w", name, err)
	}
	front, err := wire.NewFront(p.cluster.Server, transport, certificate)
	if err == nil {
		p.fronts[name] = front
	}
	return front, err
}

// controlPlane are the processes of the control plane that have slots.
var controlPlane = []string{"etcd", "kube-apiserver", "kube-scheduler", "kwok"}

// run starts everything, restarts what ends, and waits until all is ready.
func (p *plant) run(ctx context.Context) error {
	keeping, letGo := context.WithCancel(context.WithoutCancel(ctx))
	p.letGo = letGo
	for _, s := range p.slots {
		p.keep(keeping, s)
	}
	for _, running := range p.cluster.Processes() {
		if slices.Contains(controlPlane, running.Name) {
			s := adopt(p.cluster, running)
			p.slots = append(p.slots, s)
			p.keep(keeping, s)
		}
	}
	return p.awaitReady(ctx)
}

// adopt makes the slot of a process that already runs.
func adopt(cluster *localcluster.Cluster, running *subprocess.Process) *slot {
	s := &slot{name: running.Name, process: running, start: func(life int) (*subprocess.Process, error) {
		if life == 1 {
			return running, nil
		}
		return cluster.Revive(running.Name)
	}}
	switch running.Name {
	case "etcd":
		s.ready = cluster.EtcdEndpoint() + "/health"
	case "kube-apiserver":
		s.ready = cluster.Server + "/readyz"
	}
	return s
}

func (p *plant) keep(ctx context.Context, s *slot) {
	p.keeping.Go(func() {
		if err := s.keep(ctx); err != nil {
			p.failures <- err
		}
	})
}

func (p *plant) awaitReady(ctx context.Context) error {
	for _, s := range p.slots {
		if err := s.awaitReady(ctx); err != nil {
			return err
		}
	}
	select {
	case err := <-p.failures:
		return err
	default:
		return nil
	}
}

func (p *plant) slot(name string) *slot {
	i := slices.IndexFunc(p.slots, func(s *slot) bool { return s.name == name })
	return p.slots[i] // the schedule is made from our names
}

// crashes returns the unrequested ends of our processes, or of the control plane's.
func (p *plant) crashes(ours bool) []string {
	var all []string
	for _, s := range p.slots {
		s.mu.Lock()
		if s.ours == ours {
			all = append(all, s.crashes...)
		}
		s.mu.Unlock()
	}
	return all
}

// stopServices ends the services cleanly, and leaves the bus and the control plane running.
func (p *plant) stopServices() error {
	p.letGo()
	p.keeping.Wait()
	var errs []error
	for _, s := range p.slots {
		if !slices.Contains(controlPlane, s.name) && !strings.HasPrefix(s.name, "bus-") {
			errs = append(errs, s.stop())
		}
	}
	return errors.Join(errs...)
}

// close ends all processes.
func (p *plant) close() error {
	if p.letGo != nil {
		p.letGo()
		p.keeping.Wait()
	}
	err := p.cluster.Stop()
	for _, some := range p.wires {
		for _, w := range some {
			err = errors.Join(err, w.Close())
		}
	}
	for _, f := range p.fronts {
		err = errors.Join(err, f.Close())
	}
	return err
}

// loopback is the transport for requests to processes of this machine; some make their own certificates.
func loopback() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
}

func answers(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// site lists the possible targets of faults in a plant of this size.
func (s size) site() fault.Site {
	site := fault.Site{Servers: []string{"etcd", "kube-apiserver"}}
	for i := range s.buses {
		site.Buses = append(site.Buses, fmt.Sprintf("bus-%d", i+1))
	}
	for i := range s.replicas {
		for _, service := range services {
			name := fmt.Sprintf("%s-%d", service, i+1)
			site.Services = append(site.Services, name)
			site.Wires = append(site.Wires, name+">bus")
			if service != "reconcilers" {
				site.Wires = append(site.Wires, name+">api")
			}
			if service == "writer" {
				site.Fronts = append(site.Fronts, name)
			}
		}
	}
	return site
}
