// Package commandline_test writes kube-controller-manager's command line, and kubeadm's use of it, to files
// for our tests, which may not import upstream's code. It is a package of its own, because its imports change
// globals of upstream's.
package commandline_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	external "k8s.io/kube-controller-manager/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	own "k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	"k8s.io/kubernetes/pkg/controller/apis/config/v1alpha1"
)

var update = flag.Bool("update", false, "write the data anew")

// held compares a data file with upstream's data.
func held(t *testing.T, file string, want []byte) {
	t.Helper()
	file = filepath.Join("..", "..", "..", "cmd", "internal", "command", "testdata", file)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s (%v) is not what Kubernetes has; write it anew: cd test/oracle && GOWORK=off go test ./commandline -update", file, err)
	}
}

// TestFlags lists the flags of kube-controller-manager.
func TestFlags(t *testing.T) {
	all, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	named := all.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	for section, flags := range named.FlagSets {
		flags.VisitAll(func(f *pflag.Flag) { sections[f.Name] = section })
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, "flag\tof\tshorthand\ttype\tdefault\twithout a value\tdeprecated")
	flags, n := app.NewControllerManagerCommand().Flags(), 0
	flags.SortFlags = true
	flags.VisitAll(func(f *pflag.Flag) {
		section := sections[f.Name]
		if section == "" {
			section = "global"
		}
		if strings.ContainsAny(f.DefValue, "\t\n") {
			t.Errorf("the default of --%s does not fit on a line: %q", f.Name, f.DefValue)
		}
		fmt.Fprintf(&out, "%s\t%s\t%s\t%s\t%s\t%s\t%t\n", f.Name, section, f.Shorthand, f.Value.Type(), f.DefValue, f.NoOptDefVal, f.Deprecated != "")
		n++
	})
	if n < 140 {
		t.Errorf("there are only %d flags", n)
	}
	held(t, "upstream-flags.tsv", out.Bytes())
}

// TestControllers lists the controllers of kube-controller-manager.
func TestControllers(t *testing.T) {
	var out bytes.Buffer
	fmt.Fprintln(&out, "controller\taliases\toff by default\tof a cloud\tgates")
	descriptors := app.NewControllerDescriptors()
	for _, name := range app.KnownControllers() {
		d := descriptors[name]
		var gates []string
		for _, g := range d.GetRequiredFeatureGates() {
			gates = append(gates, string(g))
		}
		aliases := slices.Clone(d.GetAliases())
		slices.Sort(aliases)
		fmt.Fprintf(&out, "%s\t%s\t%t\t%t\t%s\n", name, strings.Join(aliases, ","), d.IsDisabledByDefault(), d.IsCloudProviderController(), strings.Join(gates, ","))
	}
	held(t, "upstream-controllers.tsv", out.Bytes())
}

// settings are flags with values other than the defaults, for each field of the configuration that Millrace
// also has.
var settings = []string{
	"--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16,2001:db8:42::/56", "--cluster-name=blue", "--configure-cloud-routes=false",
	"--cluster-signing-cert-file=a.crt", "--cluster-signing-key-file=a.key", "--cluster-signing-duration=48h",
	"--cluster-signing-kubelet-serving-cert-file=b.crt", "--cluster-signing-kubelet-serving-key-file=b.key",
	"--cluster-signing-kubelet-client-cert-file=c.crt", "--cluster-signing-kubelet-client-key-file=c.key",
	"--cluster-signing-kube-apiserver-client-cert-file=d.crt", "--cluster-signing-kube-apiserver-client-key-file=d.key",
	"--cluster-signing-legacy-unknown-cert-file=e.crt", "--cluster-signing-legacy-unknown-key-file=e.key",
	"--concurrent-deployment-syncs=11", "--concurrent-replicaset-syncs=12", "--concurrent_rc_syncs=13", "--concurrent-statefulset-syncs=14", "--concurrent-daemonset-syncs=15",
	"--concurrent-job-syncs=16", "--concurrent-cron-job-syncs=17", "--concurrent-ttl-after-finished-syncs=18", "--concurrent-endpoint-syncs=19",
	"--concurrent-service-endpoint-syncs=20", "--mirroring-concurrent-service-endpoint-syncs=21", "--concurrent-ephemeralvolume-syncs=22", "--concurrent-resourceclaim-syncs=23",
	"--concurrent-device-taint-eviction-syncs=24", "--concurrent-horizontal-pod-autoscaler-syncs=25", "--concurrent-gc-syncs=26", "--concurrent-namespace-syncs=27",
	"--concurrent-resource-quota-syncs=28", "--concurrent-serviceaccount-token-syncs=29", "--concurrent-validating-admission-policy-status-syncs=30",
	"--contention-profiling", "--profiling=false", "--controllers=*,-ttl-controller", "--disable-force-detach-on-timeout", "--enable-dynamic-provisioning=false", "--enable-garbage-collector=false",
	"--horizontal-pod-autoscaler-sync-period=31s", "--horizontal-pod-autoscaler-downscale-stabilization=32s", "--horizontal-pod-autoscaler-tolerance=0.25",
	"--horizontal-pod-autoscaler-cpu-initialization-period=33s", "--horizontal-pod-autoscaler-initial-readiness-delay=34s",
	"--kube-api-qps=12.5", "--kube-api-burst=35", "--kubeconfig=k.conf", "--large-cluster-size-threshold=36",
	"--leader-elect=true", "--leader-elect-lease-duration=37s", "--leader-elect-renew-deadline=21s", "--leader-elect-retry-period=3s",
	"--leader-elect-resource-name=x", "--leader-elect-resource-namespace=y", "--legacy-service-account-token-clean-up-period=38h",
	"--max-endpoints-per-slice=39", "--mirroring-max-endpoints-per-subset=40", "--node-cidr-mask-size-ipv4=25", "--node-cidr-mask-size-ipv6=66",
	"--node-eviction-rate=0.5", "--secondary-node-eviction-rate=0.125", "--unhealthy-zone-threshold=0.75", "--node-startup-grace-period=41s", "--node-monitor-grace-period=42s",
	"--resource-quota-sync-period=43s", "--root-ca-file=f.crt", "--service-account-private-key-file=f.key", "--service-cluster-ip-range=10.96.0.0/16,2001:db8:43::/112",
	"--terminated-pod-gc-threshold=44", "--use-service-account-credentials=true",
}

// TestConfigz lists the configuration that kube-controller-manager serves at /configz with those flags.
func TestConfigz(t *testing.T) {
	all, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	named := all.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	for _, section := range named.FlagSets {
		flags.AddFlagSet(section)
	}
	if err := flags.Parse(append([]string{"--secure-port=0"}, settings...)); err != nil { // it does not listen
		t.Fatal(err)
	}
	all.GarbageCollectorController.GCIgnoredResources = nil // in a random order, and set by no flag
	var internal own.Config
	if err := all.ApplyTo(&internal, app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()); err != nil {
		t.Fatal(err)
	}
	told := &external.KubeControllerManagerConfiguration{}
	if err := v1alpha1.Convert_config_KubeControllerManagerConfiguration_To_v1alpha1_KubeControllerManagerConfiguration(&internal.ComponentConfig, told, nil); err != nil {
		t.Fatal(err)
	}
	told.SetGroupVersionKind(external.SchemeGroupVersion.WithKind("KubeControllerManagerConfiguration"))
	text, err := json.MarshalIndent(map[string]any{"flags": settings, "name": app.ConfigzName, "config": told}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	held(t, "upstream-configz.json", append(text, '\n'))
}

// TestKubeadm lists the flags with which kubeadm starts it, by default and with ranges of pods.
func TestKubeadm(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct{ what, pods, services, name string }{
		{"by default", "", "", ""},
		{"with a range of pods", "10.244.0.0/16", "", "production"},
		{"with ranges of both families", "10.244.0.0/16,2001:db8:42:0::/56", "10.96.0.0/16,2001:db8:42:1::/112", ""},
	} {
		made, err := config.DefaultedStaticInitConfiguration()
		if err != nil {
			t.Fatal(err)
		}
		kubeadm.SetActiveTimeouts(made.Timeouts)
		of := &made.ClusterConfiguration
		of.Networking.PodSubnet = c.pods
		if c.services != "" {
			of.Networking.ServiceSubnet = c.services
		}
		if c.name != "" {
			of.ClusterName = c.name
		}
		pod := controlplane.GetStaticPodSpecs(of, &made.LocalAPIEndpoint, nil)[constants.KubeControllerManager]
		command := pod.Spec.Containers[0].Command
		if len(command) < 15 || command[0] != "kube-controller-manager" {
			t.Fatalf("%s: %q", c.what, command)
		}
		fmt.Fprintf(&out, "# %s\n%s\n", c.what, strings.Join(command[1:], "\n"))
	}
	held(t, "kubeadm-flags.txt", out.Bytes())
}
