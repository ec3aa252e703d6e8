package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
)

// patience is the time-out of a scenario.
const patience = 20 * time.Minute

// settled is the name of the Deployment of [field.settled].
const settled = "settled"

// field is the cluster on which a contender runs.
type field struct {
	cluster *localcluster.Cluster
	client  *arena.Client
	who     contender

	units  []unit
	way    string // how the units were started
	arenas int
	crowd  int // Pods without an owner that exist
	past   int // messages of history that exist
}

func newField(cluster *localcluster.Cluster, who contender) (*field, error) {
	client, err := arena.Connect(cluster.Kubeconfig(localcluster.Admin))
	if err != nil {
		return nil, err
	}
	return &field{cluster: cluster, client: client, who: who}, nil
}

// alone ensures that the contender runs once; paired that it runs twice. Both return when the contender has
// completed some work.
func (f *field) alone(ctx context.Context) error {
	return f.staff(ctx, "alone", f.running(controllers))
}
func (f *field) paired(ctx context.Context) error { return f.staff(ctx, "paired", f.who.paired) }

// wide is alone with the controllers of more kinds of work.
func (f *field) wide(ctx context.Context) error { return f.staff(ctx, "wide", f.running(wide)) }

// further is alone with the controllers of volumes, certificates, devices and address ranges.
func (f *field) further(ctx context.Context) error {
	return f.staff(ctx, "further", func(ctx context.Context, c *localcluster.Cluster) ([]unit, error) {
		return f.who.alone(ctx, c, further, furtherFlags(c)...)
	})
}

func (f *field) running(controllers []string) func(context.Context, *localcluster.Cluster) ([]unit, error) {
	return func(ctx context.Context, c *localcluster.Cluster) ([]unit, error) {
		return f.who.alone(ctx, c, controllers)
	}
}

func (f *field) staff(ctx context.Context, way string, start func(context.Context, *localcluster.Cluster) ([]unit, error)) error {
	if f.way == way {
		return nil
	}
	if err := f.dismiss(); err != nil {
		return err
	}
	units, err := start(ctx, f.cluster)
	if err != nil {
		return err
	}
	f.units, f.way = units, way
	if err := f.warm(ctx); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return nil
}

// dismiss stops the contender.
func (f *field) dismiss() error {
	units := f.units
	f.units, f.way = nil, ""
	return end(units)
}

// warm makes every controller work once, so that start-up is not measured: a namespace gets its account, a
// Deployment its Pod, and all of it is deleted.
func (f *field) warm(ctx context.Context) error {
	a, err := f.settled(ctx, 1)
	if err != nil {
		return err
	}
	return wipe(ctx, a)
}

// open creates a namespace. The contender creates its default service account; if no contender runs, this
// program does.
func (f *field) open(ctx context.Context) (*arena.Arena, error) {
	f.arenas++
	return f.client.Open(ctx, fmt.Sprintf("bench-%d", f.arenas), f.units == nil)
}

// settled creates a namespace with one complete Deployment.
func (f *field) settled(ctx context.Context, replicas int) (*arena.Arena, error) {
	a, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.Deploy(ctx, settled, image, replicas); err != nil {
		return nil, err
	}
	if _, err := a.Until(ctx, arena.Ready(replicas)); err != nil {
		return nil, err
	}
	_, err = a.Until(ctx, arena.Available(1))
	return a, err
}

// crowded ensures that there are so many Pods without an owner.
func (f *field) crowded(ctx context.Context, pods int) error {
	if f.crowd >= pods {
		return nil
	}
	a, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	if err := a.CreatePods(ctx, pods-f.crowd); err != nil {
		return err
	}
	f.crowd = pods
	return nil
}

// wipe deletes everything in a namespace, waits until it is deleted, and closes the arena.
func wipe(ctx context.Context, a *arena.Arena) error {
	if err := a.DeleteDeployments(ctx); err != nil {
		return err
	}
	if _, err := a.Until(ctx, arena.Empty()); err != nil {
		return err
	}
	a.Close()
	return nil
}
