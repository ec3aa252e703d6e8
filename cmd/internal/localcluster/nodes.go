package localcluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/cmd/internal/localcluster/podstages"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// nodeNet is the prefix of node addresses that must answer.
const nodeNet = "10.245.0."

// Unmanned is the label of a node that no program simulates, nor its pods: only the test
// changes them.
const Unmanned = "millrace.io/unmanned"

// nodeHosts are the host names and addresses of the kubelets, for their certificate.
func nodeHosts() []string {
	hosts := []string{"localhost", "127.0.0.1"}
	for i := 1; i < 255; i++ {
		hosts = append(hosts, nodeNet+fmt.Sprint(i))
	}
	return hosts
}

// node is the data for the template of a node's manifest.
type node struct {
	Name, Zone, PodCIDR, Address string
	KubeletPort                  int
	Attaches                     bool // the attach-detach controller attaches volumes to it
}

func (c *Cluster) nodes() []node {
	var all []node
	for i := 1; i <= c.options.Nodes; i++ {
		n := node{
			Name: fmt.Sprintf("node-%d", i), Zone: fmt.Sprintf("zone-%d", i%3), Address: "127.0.0.1",
			PodCIDR: fmt.Sprintf("10.244.%d.0/22", 4*(i-1)), KubeletPort: c.ports.Kubelet,
			Attaches: c.options.Storage,
		}
		if c.options.E2E {
			n.Address = nodeNet + fmt.Sprint(i)
		}
		all = append(all, n)
	}
	return all
}

// startNodes registers the nodes and starts the programs that simulate them.
func (c *Cluster) startNodes(ctx context.Context) error {
	if c.options.Nodes < 0 {
		return nil
	}
	if c.options.Nodes > 64 {
		return fmt.Errorf("simulate %d nodes: the range of pod addresses %s holds 64", c.options.Nodes, PodCIDR)
	}
	if c.options.E2E {
		if err := routeToThisMachine(ctx); err != nil {
			return err
		}
	}
	if err := c.apply(ctx, "nodes.yaml", c.nodes()); err != nil {
		return err
	}
	if err := c.startKwok(ctx); err != nil {
		return err
	}
	if c.options.Lean {
		return nil
	}
	return c.startFakelet(ctx)
}

func (c *Cluster) startKwok(ctx context.Context) error {
	file, err := c.settle("stages.yaml", podstages.All())
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", c.ports.Kwok)
	kwok, err := c.startProgram("kwok", []string{
		"--kubeconfig=" + c.Kubeconfig(Kwok), "--config=" + file, "--manage-nodes-with-label-selector=!" + Unmanned, "--node-lease-duration-seconds=40",
		"--cidr=10.244.0.1/24", "--server-address=" + address, fmt.Sprintf("--node-port=%d", c.ports.Kubelet),
	}, true)
	if err != nil {
		return err
	}
	return kwok.Ready(ctx, "http://"+address+"/healthz")
}

func (c *Cluster) startFakelet(ctx context.Context) error {
	args := []string{
		"-kubeconfig=" + c.Kubeconfig(Kwok), "-cert=" + c.key("kubelet.crt"), "-key=" + c.key("kubelet.key"),
	}
	if c.options.E2E {
		// Pods have many addresses: only a listener on all addresses answers them all.
		args = append(args, fmt.Sprintf("-listen=0.0.0.0:%d", c.ports.Kubelet),
			fmt.Sprintf("-metrics=%s1:%d", nodeNet, c.ports.Metrics), "-pod-ports=80,6376,8080,9376")
		if err := c.applyE2E(ctx); err != nil {
			return err
		}
	} else {
		args = append(args, fmt.Sprintf("-listen=127.0.0.1:%d", c.ports.Kubelet))
	}
	fakelet, err := c.startProgram("fakelet", args, true)
	if err != nil {
		return err
	}
	return fakelet.Ready(ctx, fmt.Sprintf("https://127.0.0.1:%d/healthz", c.ports.Kubelet))
}

// applyE2E adds objects that kubeadm and a cloud would create: the cluster-info that
// bootstrapsigner signs, and the metrics API.
func (c *Cluster) applyE2E(ctx context.Context) error {
	ca, err := os.ReadFile(c.RootCAFile())
	if err != nil {
		return fmt.Errorf("read root certificate: %w", err)
	}
	return c.apply(ctx, "e2e.yaml", map[string]any{
		"Server": c.Server, "CA": base64.StdEncoding.EncodeToString(ca),
		"MetricsAddress": nodeNet + "1", "MetricsPort": c.ports.Metrics,
	})
}

// routeToThisMachine routes pod and node addresses to the loopback interface of this
// machine. Loopback addresses cannot be used directly, because the API server refuses
// them as endpoints. The routes stay, because another cluster may use them.
func routeToThisMachine(ctx context.Context) error {
	for _, cidr := range []string{PodCIDR, nodeNet + "0/24"} {
		if out, err := exec.CommandContext(ctx, "ip", "route", "replace", "local", cidr, "dev", "lo").CombinedOutput(); err != nil {
			return fmt.Errorf("route %s to this machine: %w\n%s", cidr, err, out)
		}
	}
	return nil
}

// client is the administrator's client.
func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// nodesReady waits until every node is ready and schedulable.
func (c *Cluster) nodesReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, subprocess.ReadyDeadline)
	defer cancel()
	for {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && countReady(nodes.Items) >= c.options.Nodes {
			return nil
		}
		if !sleep.For(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for %d ready nodes: %w", c.options.Nodes, errors.Join(ctx.Err(), err))
		}
	}
}

func countReady(nodes []corev1.Node) int {
	ready := 0
	for _, n := range nodes {
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && len(n.Spec.Taints) == 0 {
				ready++
			}
		}
	}
	return ready
}
