package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
)

// wide are the controllers of scenarios that need more than the five.
var wide = append([]string{"job-controller", "statefulset-controller", "namespace-controller"}, controllers...)

// perNamespace is the number of Pods in each namespace at rest.
const perNamespace = 20

// rest is the cost of having nothing to do: a cluster full of Deployments whose Pods no scheduler handles, so
// that only the contender changes anything.
func rest(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if err := f.wide(ctx); err != nil {
		return nil, err
	}
	arenas := make([]*arena.Arena, work.Pods/perNamespace)
	for i := range arenas {
		a, err := f.open(ctx)
		if err != nil {
			return nil, err
		}
		defer a.Close()
		arenas[i] = a
	}
	err := arena.Parallel(20, len(arenas), func(i int) error {
		if err := arenas[i].DeployUnscheduled(ctx, "quiet", image, perNamespace); err != nil {
			return err
		}
		_, err := arenas[i].Until(ctx, arena.Told(perNamespace))
		return err
	})
	if err != nil {
		return nil, err
	}
	// What a process does once after work, such as returning memory, is not rest.
	if err := f.quiet(ctx, time.Duration(work.Rest)*time.Second); err != nil {
		return nil, err
	}
	metrics, err := f.idle(ctx, time.Duration(work.Rest)*time.Second)
	if err != nil {
		return nil, err
	}
	// Clean up for the next scenario without relying on a controller.
	return metrics, arena.Parallel(20, len(arenas), func(i int) error {
		if err := arenas[i].DeleteDeployments(ctx); err != nil {
			return err
		}
		_, err := arenas[i].Until(ctx, arena.Empty())
		return err
	})
}

// quiet waits until no request has written for so long.
func (f *field) quiet(ctx context.Context, long time.Duration) error {
	for {
		before, err := f.client.Ledger(ctx)
		if err != nil {
			return err
		}
		if err := arena.Rest(ctx, long); err != nil {
			return fmt.Errorf("wait until nothing is written: %w", err)
		}
		if after, err := f.client.Ledger(ctx); err != nil || after.Writes() == before.Writes() {
			return err
		}
	}
}

// idle is what the contender uses and writes in a period.
func (f *field) idle(ctx context.Context, long time.Duration) ([]metric, error) {
	before, err := usageOf(f.units)
	if err != nil {
		return nil, err
	}
	ledger, err := f.client.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := arena.Rest(ctx, long); err != nil {
		return nil, err
	}
	after, err := usageOf(f.units)
	if err != nil {
		return nil, err
	}
	written, err := f.client.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	return []metric{
		{"processor at rest", "%", 100 * (after.CPU - before.CPU) / took.Seconds()},
		{"memory at rest", "MB", after.Resident},
		{"writes at rest", "1/min", float64(written.Since(ledger).Writes()) / took.Minutes()},
	}, nil
}

// job is a Job of many completions, a tenth of them in parallel.
func job(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	begun := time.Now()
	if err := a.Job(ctx, "sum", work.Completions, max(work.Completions/10, 1)); err != nil {
		return nil, err
	}
	done, err := a.Until(ctx, arena.Complete("sum", work.Completions))
	if err != nil {
		return nil, err
	}
	if created := a.Created(); created != work.Completions {
		return nil, fmt.Errorf("%d pods were created for %d completions", created, work.Completions)
	}
	if err := a.DeleteJob(ctx, "sum"); err != nil {
		return nil, err
	}
	deleted := time.Now()
	gone, err := a.Until(ctx, arena.NoPods())
	if err != nil {
		return nil, err
	}
	return []metric{seconds("until it is complete", done.Sub(begun)), seconds("until all Pods are gone", gone.Sub(deleted))}, nil
}

// stateful is a StatefulSet of ordered Pods: it scales up several times, and down once, because that takes a
// second for each Pod.
func stateful(ctx context.Context, f *field, work sizes) ([]metric, error) {
	up, err := inNamespaces((*field).wide, ascending)(ctx, f, work)
	if err != nil {
		return nil, err
	}
	down, err := f.play(ctx, descending, work)
	return append(up, down...), err
}

// ascending is the time to create ordered Pods one after the other.
func ascending(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	took, err := ordered(ctx, a, work)
	if err != nil {
		return nil, err
	}
	if err := a.DeleteStatefulSet(ctx, "db"); err != nil {
		return nil, err
	}
	if _, err := a.Until(ctx, arena.NoPods()); err != nil {
		return nil, err
	}
	return []metric{seconds("until all are ready", took)}, nil
}

// descending is the time to delete them, the highest ordinal first.
func descending(ctx context.Context, _ *field, a *arena.Arena, work sizes) ([]metric, error) {
	if _, err := ordered(ctx, a, work); err != nil {
		return nil, err
	}
	shrunk := time.Now()
	if err := a.ScaleStatefulSet(ctx, "db", 0); err != nil {
		return nil, err
	}
	gone, err := a.Until(ctx, arena.NoPods())
	if err != nil {
		return nil, err
	}
	return []metric{seconds("until all are gone, in order", gone.Sub(shrunk))}, nil
}

// ordered creates a StatefulSet and returns the time until all Pods were ready.
func ordered(ctx context.Context, a *arena.Arena, work sizes) (time.Duration, error) {
	begun := time.Now()
	if err := a.StatefulSet(ctx, "db", image, work.Ordered); err != nil {
		return 0, err
	}
	ready, err := a.Until(ctx, arena.Ready(work.Ordered))
	return ready.Sub(begun), err
}

// emptied is the deletion of a namespace with all objects in it: half of them are Pods.
func emptied(ctx context.Context, f *field, a *arena.Arena, work sizes) ([]metric, error) {
	if err := a.CreatePods(ctx, work.Held/2); err != nil {
		return nil, err
	}
	if err := a.CreateConfigMaps(ctx, work.Held-work.Held/2); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := a.Remove(ctx); err != nil {
		return nil, err
	}
	if err := f.client.AwaitGone(ctx, a.Namespace); err != nil {
		return nil, err
	}
	return []metric{seconds("until it is gone", time.Since(begun))}, nil
}

// list is the value of a --controllers flag.
func list(controllers []string) string { return strings.Join(controllers, ",") }

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
		return append(measured, metric{"processor time", "s", after.CPU - before.CPU}), nil
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
