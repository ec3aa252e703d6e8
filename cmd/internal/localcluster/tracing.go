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
// and kube-apiserver continue the traces of their callers, and begin no trace of their
// own.
type Tracing struct {
	// Jaeger starts Jaeger with the cluster, and sends the spans there.
	Jaeger bool
	// Later makes Start not wait for Jaeger: [Cluster.BringJaeger] builds and starts it.
	// Programs get its address at their start, and run without it until then.
	Later bool
	// UsualPorts makes Jaeger listen on its default ports (16686, 4317 and 4318), as far
	// as they are free.
	UsualPorts bool
	// Collector is the host:port of another collector, by OTLP over gRPC without TLS.
	Collector string
}

// keptTraces is how many traces Jaeger keeps in memory; a large one takes
// megabytes.
const keptTraces = 20000

// JaegerURL is the URL of Jaeger's query API; empty without Jaeger.
func (c *Cluster) JaegerURL() string {
	if !c.options.Tracing.Jaeger {
		return ""
	}
	return fmt.Sprintf("http://127.0.0.1:%d", c.ports.Jaeger)
}

// Collector is the host:port of the collector, by OTLP over gRPC without TLS; empty
// if the cluster is not traced.
func (c *Cluster) Collector() string {
	if c.options.Tracing.Jaeger {
		return fmt.Sprintf("127.0.0.1:%d", c.ports.OTLP)
	}
	return c.options.Tracing.Collector
}

// UsualPort is the given port of 127.0.0.1 if no process uses it at the moment, otherwise
// another free port.
func UsualPort(usual int) (int, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", usual))
	if err != nil { // another process has it
		return FreePort()
	}
	return usual, listener.Close()
}

// choosePorts uses Jaeger's default ports if UsualPorts is set.
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

// BringJaeger builds Jaeger if it is missing, starts it, and returns when it answers. It logs
// in lines of its own. Programs whose exports have failed before retry within two minutes.
//
// Errors: Jaeger cannot be built or started, or the context ended.
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

// etcdTracing are the flags with which etcd continues the traces of its callers.
func (c *Cluster) etcdTracing() []string {
	if c.Collector() == "" {
		return nil
	}
	return []string{
		"--enable-distributed-tracing", "--distributed-tracing-address=" + c.Collector(),
		"--distributed-tracing-service-name=etcd", "--distributed-tracing-sampling-rate=0",
	}
}

// writeTracing writes the API server's tracing configuration.
func (c *Cluster) writeTracing() error {
	if c.Collector() == "" {
		return nil
	}
	_, err := c.settle("tracing.yaml", c.Collector())
	return err
}

// apiServerTracing are the flags with which the API server continues the traces of its
// callers.
func (c *Cluster) apiServerTracing() []string {
	if c.Collector() == "" {
		return nil
	}
	return []string{"--tracing-config-file=" + filepath.Join(c.Dir, "tracing.yaml")}
}

// settle renders a program's configuration and writes it into the cluster's
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
