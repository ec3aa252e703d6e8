package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Tracing says where the control plane's spans go; the zero value: nowhere. etcd
// and kube-apiserver record what their callers trace, and begin no trace of their
// own.
type Tracing struct {
	// Jaeger starts Jaeger beside the cluster, and has the spans sent there.
	Jaeger bool
	// Later has Start not wait for Jaeger: [Cluster.BringJaeger] builds and starts it.
	// What sends spans is told where it will be, and goes on without it.
	Later bool
	// UsualPorts has Jaeger listen where people and programs look for it (16686,
	// 4317 and 4318), as far as these ports are free.
	UsualPorts bool
	// Collector is the host:port of another program, which takes spans by OTLP over gRPC
	// without TLS.
	Collector string
}

// keptTraces is how many traces Jaeger keeps in memory; a large one takes
// megabytes.
const keptTraces = 20000

// JaegerURL is where Jaeger's query API answers; empty without Jaeger.
func (c *Cluster) JaegerURL() string {
	if !c.options.Tracing.Jaeger {
		return ""
	}
	return fmt.Sprintf("http://127.0.0.1:%d", c.ports.Jaeger)
}

// Collector is the host:port that takes spans by OTLP over gRPC without TLS; empty
// if the cluster is not traced.
func (c *Cluster) Collector() string {
	if c.options.Tracing.Jaeger {
		return fmt.Sprintf("127.0.0.1:%d", c.ports.OTLP)
	}
	return c.options.Tracing.Collector
}

// UsualPort is a port of 127.0.0.1 if no process uses it at the moment, otherwise one
// that no process uses.
func UsualPort(usual int) (int, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", usual))
	if err != nil { // another process has it
		return FreePort()
	}
	return usual, listener.Close()
}

// choosePorts takes the usual ports where that is asked for.
func (t Tracing) choosePorts(p *ports) error {
	if !t.Jaeger || !t.UsualPorts {
		return nil
	}
	var errs [3]error
	p.Jaeger, errs[0] = UsualPort(16686)
	p.OTLP, errs[1] = UsualPort(4317)
	p.OTLPHTTP, errs[2] = UsualPort(4318)
	return errors.Join(errs[:]...)
}

// BringJaeger builds Jaeger if it is missing, starts it, and returns when it answers. It
// says what it does in lines of its own. Programs that sent spans without success before try
// again within two minutes.
//
// Errors: it cannot be built or started, or the context ended.
func (c *Cluster) BringJaeger(ctx context.Context) error {
	if err := c.Programs.Aside().Build(ctx, "jaeger"); err != nil {
		return err
	}
	return c.startJaeger(ctx)
}

// startJaeger starts Jaeger.
func (c *Cluster) startJaeger(ctx context.Context) error {
	file, err := c.settle("jaeger.yaml", map[string]any{"Traces": keptTraces, "Ports": c.ports})
	if err != nil {
		return err
	}
	jaeger, err := c.startProgram("jaeger", []string{"--config=" + file}, true)
	if err != nil {
		return err
	}
	if err := jaeger.Ready(ctx, fmt.Sprintf("http://127.0.0.1:%d/status", c.ports.JaegerHealth)); err != nil {
		return err
	}
	return jaeger.Ready(ctx, c.JaegerURL()+"/api/services")
}

// etcdTracing are the flags by which etcd joins the traces of its callers.
func (c *Cluster) etcdTracing() []string {
	if c.Collector() == "" {
		return nil
	}
	return []string{
		"--enable-distributed-tracing", "--distributed-tracing-address=" + c.Collector(),
		"--distributed-tracing-service-name=etcd", "--distributed-tracing-sampling-rate=0",
	}
}

// writeTracing writes what the API server reads of tracing.
func (c *Cluster) writeTracing() error {
	if c.Collector() == "" {
		return nil
	}
	_, err := c.settle("tracing.yaml", c.Collector())
	return err
}

// apiServerTracing are the flags by which the API server joins the traces of its
// callers.
func (c *Cluster) apiServerTracing() []string {
	if c.Collector() == "" {
		return nil
	}
	return []string{"--tracing-config-file=" + filepath.Join(c.Dir, "tracing.yaml")}
}

// settle fills a program's configuration and writes it into the cluster's
// directory.
func (c *Cluster) settle(name string, data any) (file string, err error) {
	rendered, err := render(name, data)
	if err != nil {
		return "", err
	}
	file = filepath.Join(c.Dir, name)
	if err := os.WriteFile(file, rendered, 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return file, nil
}
