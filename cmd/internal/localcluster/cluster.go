package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
	"github.com/millrace/millrace/cmd/internal/localcluster/progress"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/pkg/events/stream/port"
)

// DevDir is the directory of the cluster of a checkout.
func DevDir(checkout string) string { return filepath.Join(checkout, ".millrace", "cluster") }

// DevKubeconfig is the administrator's kubeconfig of the cluster in DevDir, which programs
// use by default.
func DevKubeconfig(checkout string) string {
	return filepath.Join(DevDir(checkout), string(Admin)+".kubeconfig")
}

// Options are the options of a cluster. The zero value has sensible defaults.
type Options struct {
	// Dir holds keys, kubeconfigs, logs and data. Empty: a temporary directory
	// that Stop removes.
	Dir string
	// Keep reuses the data that an earlier cluster left in Dir. Otherwise the cluster
	// starts empty, and Stop removes its data.
	Keep bool
	// Nodes is the number of simulated nodes (0: 10, negative: none).
	Nodes int
	// E2E gives pods and nodes addresses that answer on this machine and serves
	// metrics, as Kubernetes' own end-to-end tests expect. Needs root.
	E2E bool
	// Storage starts a storage driver without disks: claims get volumes of a default
	// class, which can be attached and expanded. E2E includes it.
	Storage bool
	// Lean leaves out logs and exec of simulated pods, because they cost a watch on all
	// pods.
	Lean bool
	// NotReadyTaint keeps the admission plugin that taints new nodes as not ready.
	// Only node-lifecycle-controller removes the taint: without it no pod would ever be
	// scheduled, so the plugin is off by default.
	NotReadyTaint bool
	// KCM are the kube-controller-manager processes to start, one each.
	KCM []KCM
	// APIServerArgs are further flags of kube-apiserver.
	APIServerArgs []string
	// Tracing says where the control plane's spans go.
	Tracing Tracing
	// Detached leaves the processes running when the starting process ends; Open finds
	// them again.
	Detached bool
	// Output receives progress messages, above all of the long builds. Nil: none.
	Output io.Writer
}

// Cluster is a running control plane.
type Cluster struct {
	// Dir is the directory of the cluster's files.
	Dir string
	// Server is the URL of the API server.
	Server string
	// Programs are the built programs.
	Programs *binaries.Cache

	options  Options
	ports    ports
	etcdData string
	progress *progress.Progress

	mu        sync.Mutex
	processes []*subprocess.Process // in the order in which they were started
}

// Start builds missing programs, starts a control plane, and returns when the API server
// and every node are ready. If it fails, it leaves no process behind; the logs stay in Dir,
// if Dir was given.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c, err := prepare(options)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Open finds the detached cluster whose files are in dir, to connect to it and stop it. It
// cannot start further processes in it.
func Open(dir string) (*Cluster, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, fmt.Errorf("open cluster in %s: %w", dir, err)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", stateFile, dir, err)
	}
	c := &Cluster{Dir: dir, Server: s.Server, etcdData: s.EtcdData, ports: s.Ports, progress: progress.New(nil)}
	c.options = Options{Dir: dir, Detached: true, Keep: s.Keep}
	for _, p := range s.Processes {
		c.processes = append(c.processes, subprocess.Find(p))
	}
	return c, nil
}

// Stop ends every process, latest first, and removes the data of a cluster that is
// not kept. It is idempotent.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	running := c.processes
	c.processes = nil
	c.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(running) {
		errs = append(errs, p.Stop())
	}
	_ = os.Remove(filepath.Join(c.Dir, stateFile))
	if !c.options.Keep {
		errs = append(errs, os.RemoveAll(c.etcdData))
	}
	if c.options.Dir == "" {
		errs = append(errs, os.RemoveAll(c.Dir))
	}
	return errors.Join(errs...)
}

// Config is the administrator's client configuration, without a limit on
// requests.
func (c *Cluster) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(Admin))
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	return config, nil
}

// Run starts a further program as part of this cluster: its log is beside the others, and
// it ends with the cluster. The name must be unused or that of a process that has ended.
func (c *Cluster) Run(name, path string, args ...string) (*subprocess.Process, error) {
	return c.launch(subprocess.Spec{Name: name, Path: path, Args: args})
}

// Revive restarts a program that has ended, with the same arguments, and appends to its
// log. It does not wait until the program is ready.
//
// Errors: this process never started a program of that name, or it is running.
func (c *Cluster) Revive(name string) (*subprocess.Process, error) {
	all := c.Processes()
	for _, p := range all {
		if again, ended := p.Again(); p.Name == name && ended {
			return c.launch(again)
		}
	}
	return nil, fmt.Errorf("start %s again: it is no program of this cluster that has ended", name)
}

func (c *Cluster) launch(s subprocess.Spec) (*subprocess.Process, error) {
	s.Detached, s.Log = c.options.Detached, filepath.Join(c.Dir, "logs", s.Name+".log")
	p, err := subprocess.Start(s)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.processes = append(slices.DeleteFunc(c.processes, func(q *subprocess.Process) bool { return q.Name == s.Name }), p)
	c.mu.Unlock()
	return p, c.save()
}

// ServingCertificate are the files of the API server's certificate and key, for a proxy in
// front of it on this machine.
func (c *Cluster) ServingCertificate() (certificate, key string) {
	return c.key("apiserver.crt"), c.key("apiserver.key")
}

// Processes are the processes that were started and have not been stopped.
func (c *Cluster) Processes() []*subprocess.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.processes)
}

func prepare(options Options) (*Cluster, error) {
	if options.Nodes == 0 {
		options.Nodes = 10
	}
	options.Storage = options.Storage || options.E2E
	if options.E2E && os.Geteuid() != 0 {
		return nil, errors.New("start cluster for end-to-end tests: routing pod addresses to this machine needs root")
	}
	c := &Cluster{options: options, progress: progress.New(options.Output), Dir: options.Dir}
	var err error
	if c.Programs, err = binaries.Find(options.Output); err != nil {
		return nil, err
	}
	if c.ports, err = freePorts(); err != nil {
		return nil, err
	}
	if err := options.Tracing.choosePorts(&c.ports); err != nil {
		return nil, err
	}
	c.Server = fmt.Sprintf("https://127.0.0.1:%d", c.ports.APIServer)
	if c.Dir == "" {
		c.Dir, err = os.MkdirTemp("", "millrace-cluster-")
	} else if c.Dir, err = filepath.Abs(c.Dir); err == nil {
		err = os.MkdirAll(c.Dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make cluster directory: %w", err)
	}
	return c, c.makeRoom()
}

// needed are the programs that a cluster with these options needs.
func (o Options) needed() []string {
	needed := []string{"etcd", "kube-apiserver", "kube-scheduler"}
	if o.Nodes > 0 {
		needed = append(needed, "kwok")
		if !o.Lean {
			needed = append(needed, "fakelet")
		}
	}
	if o.Storage {
		needed = append(needed, binaries.StorageDriver)
	}
	if len(o.KCM) > 0 {
		needed = append(needed, "kube-controller-manager")
	}
	if o.Tracing.Jaeger && !o.Tracing.Later {
		needed = append(needed, "jaeger")
	}
	return needed
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.Programs.Build(ctx, c.options.needed()...); err != nil {
		return err
	}
	if err := c.writeKeys(); err != nil {
		return err
	}
	if err := c.writeTracing(); err != nil {
		return err
	}
	if c.options.Tracing.Jaeger && !c.options.Tracing.Later { // before the programs that send to it
		if err := c.startJaeger(ctx); err != nil {
			return err
		}
	}
	done := c.progress.Step("starting etcd, kube-apiserver and kube-scheduler")
	err := c.startControlPlane(ctx)
	if done(err); err != nil {
		return err
	}
	done = c.progress.Step(fmt.Sprintf("starting %d simulated nodes", max(c.options.Nodes, 0)))
	err = c.startNodes(ctx)
	if done(err); err != nil {
		return err
	}
	if c.options.Storage {
		if _, err := c.startStorage(ctx); err != nil {
			return err
		}
	}
	for i, kcm := range c.options.KCM {
		done := c.progress.Step("starting kube-controller-manager")
		_, err := c.StartKCM(ctx, i+1, kcm)
		if done(err); err != nil {
			return err
		}
	}
	return c.nodesReady(ctx)
}

// stateFile is the file by which Open finds a cluster again.
const stateFile = "cluster.json"

type state struct {
	Server    string             `json:"server"`
	EtcdData  string             `json:"etcdData"`
	Keep      bool               `json:"keep,omitempty"`
	Ports     ports              `json:"ports"`
	Processes []subprocess.State `json:"processes"`
}

// save writes what Open needs; only a detached cluster outlives its starter.
func (c *Cluster) save() error {
	if !c.options.Detached {
		return nil
	}
	s := state{Server: c.Server, EtcdData: c.etcdData, Keep: c.options.Keep, Ports: c.ports}
	for _, p := range c.Processes() {
		s.Processes = append(s.Processes, p.State())
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode cluster state: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.Dir, stateFile), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write cluster state: %w", err)
	}
	return nil
}

// ports are the programs' ports, all on 127.0.0.1, except for the kubelets' and the metrics
// server's with [Options].E2E.
type ports struct {
	Etcd, EtcdPeer, APIServer, Scheduler, Kwok, Kubelet, Metrics, Storage int
	Jaeger, JaegerGRPC, JaegerHealth, OTLP, OTLPHTTP                      int
}

func (p *ports) all() []*int {
	return []*int{
		&p.Etcd, &p.EtcdPeer, &p.APIServer, &p.Scheduler, &p.Kwok, &p.Kubelet, &p.Metrics, &p.Storage,
		&p.Jaeger, &p.JaegerGRPC, &p.JaegerHealth, &p.OTLP, &p.OTLPHTTP,
	}
}

// freePorts chooses a free port for every program.
func freePorts() (p ports, err error) {
	for _, one := range p.all() {
		if *one, err = FreePort(); err != nil {
			return ports{}, err
		}
	}
	return p, nil
}

// FreePort is a port of 127.0.0.1 that no process uses, reserved until this process ends; see
// package port.
func FreePort() (int, error) { return port.Free() }
