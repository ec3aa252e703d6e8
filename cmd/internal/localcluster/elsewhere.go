package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/internal/localcluster/podstages"
	"github.com/millrace/millrace/cmd/internal/localcluster/progress"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// Elsewhere is a control plane whose programs another program starts, such as docker compose.
// It makes the files that they read, and then the objects that must exist.
type Elsewhere struct {
	// Dir holds keys, kubeconfigs and kwok's configuration.
	Dir string
	// Server is the URL of the API server for these programs.
	Server string
	// Nodes is the number of simulated nodes.
	Nodes int
}

func (e Elsewhere) cluster() *Cluster {
	options := Options{Dir: e.Dir, Keep: true, Nodes: e.Nodes}
	return &Cluster{Dir: e.Dir, Server: e.Server, options: options, progress: progress.New(nil)}
}

// WriteFiles makes missing keys, and writes a kubeconfig for each user and kwok's
// configuration.
func (e Elsewhere) WriteFiles() error {
	c := e.cluster()
	if err := c.writeKeys(); err != nil {
		return err
	}
	_, err := c.settle("stages.yaml", podstages.All())
	return err
}

// HandOut copies the kubeconfig of a user into a directory, as "kubeconfig", and the root
// certificate, as "ca.crt", so that a program does not see other users' credentials. The
// writer also gets the key that signs tokens, as "sa.key". Without a user HandOut copies only
// the certificate.
func (e Elsewhere) HandOut(user User, dir string) error {
	c := e.cluster()
	copies := map[string]string{c.RootCAFile(): "ca.crt"}
	if user != "" {
		copies[c.Kubeconfig(user)] = "kubeconfig"
	}
	if user == Writer {
		copies[c.ServiceAccountKeyFile()] = "sa.key"
	}
	for from, to := range copies {
		data, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("hand out the credentials of %s: %w", user, err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o600); err != nil {
			return fmt.Errorf("hand out the credentials of %s: %w", user, err)
		}
	}
	return nil
}

// Prepare waits until the API server is ready, and applies roles and nodes.
func (e Elsewhere) Prepare(ctx context.Context) error {
	c := e.cluster()
	if err := c.serverReady(ctx); err != nil {
		return err
	}
	return errors.Join(c.applyRoles(ctx), c.apply(ctx, "nodes.yaml", c.nodes()))
}

// Kubeconfig is the kubeconfig of a user, with another URL of the API server.
func (e Elsewhere) Kubeconfig(user User, server string) ([]byte, error) {
	config, err := clientcmd.LoadFromFile(e.cluster().Kubeconfig(user))
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", user, err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server
	}
	return clientcmd.Write(*config)
}

// serverReady waits until the API server's /readyz succeeds.
func (c *Cluster) serverReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, subprocess.ReadyDeadline)
	defer cancel()
	for {
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		if !sleep.For(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for the API server at %s: %w", c.Server, err)
		}
	}
}
