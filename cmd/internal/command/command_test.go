package command

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

func TestFlagsOfEveryCommand(t *testing.T) {
	// Upstream: the flags that people's manifests for kube-controller-manager hold.
	want := map[string][]string{
		"run": {"kubeconfig", "master", "controllers", "root-ca-file", "enable-garbage-collector", "use-service-account-credentials", "profiling",
			"concurrent-deployment-syncs", "concurrent-replicaset-syncs", "concurrent-rc-syncs", "concurrent-statefulset-syncs", "concurrent-daemonset-syncs",
			"concurrent-endpoint-syncs", "concurrent-service-endpoint-syncs", "concurrent-gc-syncs", "concurrent-namespace-syncs",
			"concurrent-job-syncs", "concurrent-cron-job-syncs", "concurrent-ttl-after-finished-syncs", "concurrent-ephemeralvolume-syncs",
			"mirroring-concurrent-service-endpoint-syncs", "mirroring-max-endpoints-per-subset", "concurrent_rc_syncs",
			"concurrent-serviceaccount-token-syncs", "concurrent-validating-admission-policy-status-syncs",
			"endpoint-updates-batch-period", "endpointslice-updates-batch-period", "mirroring-endpointslice-updates-batch-period", "namespace-sync-period",
			"max-endpoints-per-slice", "terminated-pod-gc-threshold",
			"node-monitor-grace-period", "node-startup-grace-period", "node-eviction-rate", "secondary-node-eviction-rate",
			"unhealthy-zone-threshold", "large-cluster-size-threshold",
			"nats-url", "data-dir", "mode", "health-address", "config", "v", "logging-format"},
		"watcher":     {"kubeconfig", "controllers", "nats-url", "health-address"},
		"reconcilers": {"controllers", "nats-url", "health-address"},
		"writer":      {"kubeconfig", "controllers", "nats-url", "mode", "health-address"},
		"bus":         {"data-dir", "nats-listen", "health-address"},
		"dev":         {"controllers", "data-dir", "nodes", "fresh"},
	}
	commands := newRoot().Commands()
	for name, flags := range want {
		i := slices.IndexFunc(commands, func(c *cobra.Command) bool { return c.Name() == name })
		if i < 0 {
			t.Errorf("there is no command %s", name)
			continue
		}
		for _, flag := range flags {
			if commands[i].Flags().Lookup(flag) == nil {
				t.Errorf("%s has no flag --%s", name, flag)
			}
		}
	}
	for _, c := range commands {
		if c.Name() == "reconcilers" && c.Flags().Lookup("kubeconfig") != nil {
			t.Error("the reconcilers take a kubeconfig; they must have no credentials")
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s does not say what it is for", c.Name(), f.Name)
			}
		})
	}
}

func TestConcurrencyIsOfControllersThatAreThere(t *testing.T) {
	var known []string
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			known = append(known, e.Name)
		}
	}
	for name, n := range newWriterOptions().concurrent.byName() {
		if !slices.Contains(known, name) || n <= 0 {
			t.Errorf("%d turns at once for %q, which must be one of %v", n, name, known)
		}
	}
}

func TestSelectionLeavesTheGarbageCollectorOut(t *testing.T) {
	o := newControllerOptions()
	names := func() []string {
		chosen, err := o.choose()
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, p := range profiles(choice{acting: chosen.all()}) {
			all = append(all, p.Name)
		}
		return all
	}
	if got := names(); !slices.Contains(got, "garbage-collector-controller") {
		t.Errorf("by default %v run, without the garbage collector", got)
	}
	o.collect = false
	if got := names(); slices.Contains(got, "garbage-collector-controller") || len(got) == 0 {
		t.Errorf("with --enable-garbage-collector=false %v run", got)
	}
	if got := names(); slices.Contains(got, "root-ca-certificate-publisher-controller") {
		t.Errorf("without a root certificate %v run", got)
	}
}

func TestRedactedHidesPasswords(t *testing.T) {
	for given, want := range map[string]string{
		"nats://a:1":                       "nats://a:1",
		"nats://me:word@a:1, nats://b:2":   "nats://me:xxxxx@a:1,nats://b:2",
		"nats://me:wo%zzrd@a:1,nats://b:2": "(malformed),nats://b:2",
	} {
		if got := (&connect.Connection{URL: given}).Redacted(); got != want {
			t.Errorf("%q is shown as %q, want %q", given, got, want)
		}
	}
}

// TestPartsStopInOrder: each part stops only after the one before it has finished.
func TestPartsStopInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []string
		slow := func(name string, takes time.Duration) part {
			return part{name: name, run: func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(takes)
				ended = append(ended, name)
				return nil
			}}
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		o := serviceOptions{grace: 10 * time.Second}
		if err := o.run(ctx, []part{slow("deciding", 3*time.Second), slow("writing", time.Second), slow("watching", 0)}); err != nil {
			t.Errorf("run ended with %v", err)
		}
		if got := strings.Join(ended, " "); got != "deciding writing watching" {
			t.Errorf("the parts ended in the order %s", got)
		}
	})
}

func TestAFailingPartStopsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		finished := false
		o := serviceOptions{grace: 10 * time.Second}
		err := o.run(t.Context(), []part{
			{name: "sound", run: func(ctx context.Context) error { <-ctx.Done(); finished = true; return nil }},
			{name: "weak", run: func(context.Context) error { return broken }},
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "weak") {
			t.Errorf("run ended with %v, want the failure and whose it is", err)
		}
		if !finished {
			t.Error("the other part was not stopped")
		}
	})
}

// TestGraceEnds: a part that does not finish in time does not delay the end of the process.
func TestGraceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begun := time.Now()
		time.AfterFunc(time.Second, stop)
		release := make(chan struct{})
		o := serviceOptions{grace: 10 * time.Second}
		if err := o.run(ctx, []part{{name: "stuck", run: func(context.Context) error { <-release; return nil }}}); err != nil {
			t.Errorf("run ended with %v", err)
		}
		if took := time.Since(begun); took != 11*time.Second {
			t.Errorf("run ended after %v, want the second before it was told and ten of grace", took)
		}
		close(release)
	})
}

func TestDeadConnectionsAreNoticedSoonUnlessToldOtherwise(t *testing.T) {
	const idle, ping = "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"
	t.Setenv(idle, "7")
	t.Setenv(ping, "") // so that it is put back afterwards
	if err := os.Unsetenv(ping); err != nil {
		t.Fatal(err)
	}
	if err := noticeDeadConnections(); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(idle) != "7" || os.Getenv(ping) != "5" {
		t.Errorf("the pace is %s and %s s, want 7, as it was set, and 5", os.Getenv(idle), os.Getenv(ping))
	}
}
