package localcluster

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
)

// StartStorage adds the storage of [Options].Storage to a cluster that was started without it: the
// driver, its CSIDriver and default StorageClass, and the nodes' settings for attached volumes.
func (c *Cluster) StartStorage(ctx context.Context) (*subprocess.Process, error) {
	if err := c.Programs.Build(ctx, binaries.StorageDriver); err != nil {
		return nil, err
	}
	c.options.Storage = true
	if c.options.Nodes > 0 {
		if err := c.apply(ctx, "nodes.yaml", c.nodes()); err != nil {
			return nil, err
		}
	}
	return c.startStorage(ctx)
}

func (c *Cluster) startStorage(ctx context.Context) (*subprocess.Process, error) {
	if err := c.apply(ctx, "storage.yaml", nil); err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", c.ports.Storage)
	p, err := c.startProgram(binaries.StorageDriver, []string{"-kubeconfig=" + c.Kubeconfig(Kwok), "-listen=" + address}, true)
	if err != nil {
		return nil, err
	}
	return p, p.Ready(ctx, "http://"+address+"/healthz")
}
