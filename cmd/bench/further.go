package main

import (
	"context"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
)

// further are the controllers that bind and attach volumes, sign certificates, allocate devices and give
// address ranges to nodes.
var further = append([]string{
	"persistentvolume-binder-controller", "persistentvolume-attach-detach-controller",
	"persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
	"certificatesigningrequest-approving-controller", "certificatesigningrequest-signing-controller",
	"resourceclaim-controller", "node-ipam-controller",
}, wide...)

// furtherFlags configure the signer, and the range that is divided. It must have room for more than the ten
// nodes of the cluster itself, which get ranges of it, too.
func furtherFlags(c *localcluster.Cluster) []string {
	return []string{
		"--cluster-signing-cert-file=" + c.RootCAFile(), "--cluster-signing-key-file=" + c.RootCAKeyFile(),
		"--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/8", "--node-cidr-mask-size=24",
		"--service-cluster-ip-range=" + localcluster.ServiceCIDR,
	}
}

// attachingNodes is the number of nodes on which volumes are attached.
const attachingNodes = 10

// inFurther plays something once with these controllers, and adds the processor time that the contender used
// for it and for the clean-up.
func inFurther(play play) func(context.Context, *field, sizes) ([]metric, error) {
	return func(ctx context.Context, f *field, work sizes) ([]metric, error) {
		if err := f.further(ctx); err != nil {
			return nil, err
		}
		before, err := usageOf(f.units)
		if err != nil {
			return nil, err
		}
		measured, err := f.play(ctx, play, work)
		if err != nil {
			return nil, err
		}
		after, err := usageOf(f.units)
		if err != nil {
			return nil, err
		}
		return append(measured, metric{"processor time", "s", after.cpu - before.cpu}), nil
	}
}

// counted begins a count, calls do, and returns the time until the count was complete.
func counted(ctx context.Context, begin func(context.Context) (*arena.Tally, error), n int, do func() error) (*arena.Tally, time.Duration, error) {
	tally, err := begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	begun := time.Now()
	if err := do(); err != nil {
		return nil, 0, err
	}
	at, err := tally.Until(ctx, n)
	return tally, at.Sub(begun), err
}

// claims is the time until many claims are bound to existing volumes.
func claims(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	bound, took, err := bind(ctx, a, work.Claims)
	if err != nil {
		return nil, err
	}
	return []metric{seconds("until all claims are bound", took)}, a.DeleteVolumes(ctx, bound)
}

// bind creates n volumes and n claims.
func bind(ctx context.Context, a *arena.Arena, n int) (*arena.Tally, time.Duration, error) {
	if err := a.CreateVolumes(ctx, n); err != nil {
		return nil, 0, err
	}
	return counted(ctx, a.BoundClaims, n, func() error { return a.CreateClaims(ctx, n) })
}

// attachments is the time until the volumes of many Pods are attached, and the time until they are detached
// after the Pods were deleted. This program acts as the driver's attacher.
func attachments(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	bound, _, err := bind(ctx, a, work.Claims)
	if err != nil {
		return nil, err
	}
	if err := a.CreateNodes(ctx, attachingNodes); err != nil {
		return nil, err
	}
	asked, took, err := counted(ctx, a.Attachments, work.Claims, func() error { return a.MountClaims(ctx, work.Claims, attachingNodes) })
	if err != nil {
		return nil, err
	}
	deleted := time.Now()
	if err := a.DeleteMounts(ctx, asked); err != nil {
		return nil, err
	}
	gone := time.Since(deleted)
	if err := a.DeleteVolumes(ctx, bound); err != nil {
		return nil, err
	}
	return []metric{seconds("until all are attached", took), seconds("until all are gone again", gone)}, a.DeleteNodes(ctx)
}

// certificates is the time until many requests of kubelets are approved and signed.
func certificates(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	requests, err := a.Requests(work.Requests)
	if err != nil {
		return nil, err
	}
	signed, took, err := counted(ctx, a.SignedRequests, work.Requests, func() error { return a.Request(ctx, requests) })
	if err != nil {
		return nil, err
	}
	if err := a.DeleteRequests(ctx); err != nil {
		return nil, err
	}
	return []metric{seconds("until all are signed", took)}, signed.Gone(ctx)
}

// devices is the time until many Pods have the claims for their devices.
func devices(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	claimed, took, err := counted(ctx, a.ClaimedDevices, work.Requests, func() error { return a.ClaimDevices(ctx, work.Requests) })
	if err != nil {
		return nil, err
	}
	if err := a.DeletePods(ctx); err != nil {
		return nil, err
	}
	return []metric{seconds("until all Pods have their claim", took)}, claimed.Gone(ctx)
}

// ranges is the time until many new nodes have a range of Pod addresses.
func ranges(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	given, took, err := counted(ctx, a.RangedNodes, work.Requests, func() error { return a.CreateNodes(ctx, work.Requests) })
	if err != nil {
		return nil, err
	}
	if err := a.DeleteNodes(ctx); err != nil {
		return nil, err
	}
	return []metric{seconds("until all nodes have a range", took)}, given.Gone(ctx)
}
