package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
)

// The address ranges of services and pods. A replacement of kube-controller-manager
// needs them as flags.
const (
	ServiceCIDR = "10.96.0.0/16"
	PodCIDR     = "10.244.0.0/16"
)

// startControlPlane starts etcd, kube-apiserver and kube-scheduler.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	etcd, err := c.startProgram("etcd", c.etcdArgs(), false)
	if err != nil {
		return err
	}
	if err := etcd.Ready(ctx, fmt.Sprintf("http://127.0.0.1:%d/health", c.ports.Etcd)); err != nil {
		return err
	}
	// It is killed at the end, because it has no state, and would otherwise wait for every watch
	// to end.
	server, err := c.startProgram("kube-apiserver", c.apiServerArgs(), true)
	if err != nil {
		return err
	}
	if err := server.Ready(ctx, c.Server+"/readyz"); err != nil {
		return err
	}
	if err := c.applyRoles(ctx); err != nil {
		return err
	}
	scheduler, err := c.startProgram("kube-scheduler", c.schedulerArgs(), true)
	if err != nil {
		return err
	}
	return scheduler.Ready(ctx, fmt.Sprintf("https://127.0.0.1:%d/healthz", c.ports.Scheduler))
}

// RestartAPIServer kills kube-apiserver and starts it again on the same port, as a
// crash would.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	if err := c.kill("kube-apiserver"); err != nil {
		return err
	}
	return c.restartAPIServer(ctx)
}

// RestartStorage stops kube-apiserver and etcd, calls do with etcd's data directory, to back it
// up or restore it, and starts both again. It applies the roles again, which a restored
// storage may not have.
func (c *Cluster) RestartStorage(ctx context.Context, do func(dir string) error) error {
	// While no etcd locks the data, the sweep of another cluster that starts would remove it
	// unless it was modified recently.
	now := time.Now()
	if err := os.Chtimes(c.etcdData, now, now); err != nil {
		return fmt.Errorf("touch etcd's data: %w", err)
	}
	if err := errors.Join(c.kill("kube-apiserver"), c.kill("etcd"), do(c.etcdData)); err != nil {
		return err
	}
	etcd, err := c.startProgram("etcd", c.etcdArgs(), false)
	if err != nil {
		return err
	}
	if err := etcd.Ready(ctx, c.EtcdEndpoint()+"/health"); err != nil {
		return err
	}
	if err := c.restartAPIServer(ctx); err != nil {
		return err
	}
	return c.applyRoles(ctx)
}

// kill kills every process with a name.
func (c *Cluster) kill(name string) error {
	var errs []error
	for _, p := range c.Processes() {
		if p.Name == name {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}

func (c *Cluster) restartAPIServer(ctx context.Context) error {
	server, err := c.startProgram("kube-apiserver", c.apiServerArgs(), true)
	if err != nil {
		return err
	}
	return server.Ready(ctx, c.Server+"/readyz")
}

// startProgram starts a built program as a process of the same name.
func (c *Cluster) startProgram(name string, args []string, abrupt bool) (*subprocess.Process, error) {
	return c.launch(subprocess.Spec{Name: name, Path: c.Programs.Path(name), Args: args, Abrupt: abrupt})
}

// EtcdEndpoint is the URL of etcd, for tests that compact or restore it.
func (c *Cluster) EtcdEndpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", c.ports.Etcd) }

func (c *Cluster) etcdArgs() []string {
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.ports.EtcdPeer)
	return append([]string{
		"--name=millrace", "--data-dir=" + c.etcdData,
		"--listen-client-urls=" + c.EtcdEndpoint(), "--advertise-client-urls=" + c.EtcdEndpoint(),
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=millrace=" + peer,
		"--log-level=warn", "--quota-backend-bytes=4294967296",
	}, c.etcdTracing()...)
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=" + c.EtcdEndpoint(),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.APIServer),
		"--endpoint-reconciler-type=none", // a loopback address is not valid in Endpoints
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true", "--allow-privileged=true",
		"--client-ca-file=" + c.key("ca.crt"),
		"--tls-cert-file=" + c.key("apiserver.crt"), "--tls-private-key-file=" + c.key("apiserver.key"),
		"--kubelet-client-certificate=" + c.key("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + c.key("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + c.key("ca.crt"), "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.key("sa.pub"), "--service-account-signing-key-file=" + c.key("sa.key"),
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-client-ca-file=" + c.key("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--enable-aggregator-routing=true",
		"--proxy-client-cert-file=" + c.key("front-proxy-client.crt"), "--proxy-client-key-file=" + c.key("front-proxy-client.key"),
	}
	if !c.options.NotReadyTaint {
		args = append(args, "--disable-admission-plugins=TaintNodesByCondition")
	}
	return slices.Concat(args, c.apiServerTracing(), c.options.APIServerArgs)
}

func (c *Cluster) schedulerArgs() []string {
	kubeconfig := c.Kubeconfig(Scheduler)
	return []string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.Scheduler), "--leader-elect=false",
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--cert-dir=" + filepath.Join(c.Dir, "scheduler"),
		"--kube-api-qps=5000", "--kube-api-burst=10000", // measurements must not wait for the scheduler
	}
}
