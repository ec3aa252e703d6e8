package command

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/settings"
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
			"nats-url", "data-dir", "nats-max-store", "mode", "health-address", "config", "v", "logging-format"},
		"watcher":     {"kubeconfig", "controllers", "nats-url", "health-address"},
		"reconcilers": {"controllers", "nats-url", "health-address"},
		"writer":      {"kubeconfig", "controllers", "nats-url", "mode", "health-address"},
		"bus":         {"data-dir", "nats-max-store", "nats-listen", "health-address"},
		"provisioner": {"nats-max-store"},
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

// TestVersionOfAService: each service has --version, as kube-controller-manager has.
func TestVersionOfAService(t *testing.T) {
	for _, name := range []string{"run", "writer"} {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{name, "--version"})
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), program.Version) {
			t.Errorf("millrace %s --version: %v, %q", name, err, out.String())
		}
	}
}

// TestRetentionAndRedactionInTheFile: both are lists in the configuration file.
func TestRetentionAndRedactionInTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "services.yaml")
	text := `apiVersion: millrace.io/v1alpha1
kind: MillraceConfiguration
flags:
  retention: [pods=72h/2Gi, replicaset-controller=168h]
  redact:
    - configmaps!kube-root-ca.crt:.data
    - "pods:.metadata.annotations['example.com/token']"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := subcommand(t, "watcher").Flags()
	if err := settings.Fill(flags, file, func(string) (string, bool) { return "", false }); err != nil {
		t.Fatal(err)
	}
	if kept := flags.Lookup("retention").Value.String(); kept != "pods=72h0m0s/2Gi,replicaset-controller=168h0m0s" {
		t.Errorf("kept are %v", kept)
	}
	if got := flags.Lookup("redact").Value.String(); got != "configmaps!kube-root-ca.crt:.data,pods:.metadata.annotations['example.com/token']" {
		t.Errorf("hidden is %s", got)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
