package command

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// upstreamFlag is a flag of kube-controller-manager.
type upstreamFlag struct{ name, of, shorthand, kind, standard, bare string }

// upstreamFlags are all of them, from the table that test/oracle generates.
func upstreamFlags(t *testing.T) (all []upstreamFlag) {
	t.Helper()
	for _, f := range table(t, "upstream-flags.tsv") {
		all = append(all, upstreamFlag{f[0], f[1], f[2], f[3], f[4], f[5]})
	}
	if len(all) < 140 {
		t.Fatalf("there are only %d flags", len(all))
	}
	return all
}

// table reads a table of test data, without its header.
func table(t *testing.T, file string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	ok(t, err)
	for line := range strings.Lines(string(text)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows[1:]
}

// runFlags are the flags of millrace run.
func runFlags() *pflag.FlagSet {
	run := newRun()
	run.InitDefaultHelpFlag()
	run.InitDefaultVersionFlag()
	return run.Flags()
}

// otherwise are the flags whose defaults differ from kube-controller-manager's on purpose, besides
// those for concurrency.
var otherwise = []string{
	"profiling", "use-service-account-credentials", "leader-elect", "kube-api-qps",
}

// unlike is whether Millrace's flag has another default. Zero may be spelled in two ways.
func (f upstreamFlag) unlike(ours *pflag.Flag) bool {
	plain := func(text string) string {
		if strings.Trim(text, "[]") == "" || text == "0s" {
			return ""
		}
		return text
	}
	return plain(f.standard) != plain(ours.DefValue)
}

// TestFlagsAreUpstreams: each flag of kube-controller-manager is one of millrace run, with its
// shorthand, its form without a value, and its default.
func TestFlagsAreUpstreams(t *testing.T) {
	ours := runFlags()
	for _, f := range upstreamFlags(t) {
		is := ours.Lookup(f.name)
		if is == nil {
			t.Errorf("kube-controller-manager's flag --%s (%s) is not here", f.name, f.of)
			continue
		}
		if is.Shorthand != f.shorthand || is.NoOptDefVal != f.bare {
			t.Errorf("--%s is -%s, and %q without a value; kube-controller-manager's is -%s, and %q", f.name, is.Shorthand, is.NoOptDefVal, f.shorthand, f.bare)
		}
		if meant := slices.Contains(otherwise, f.name); f.unlike(is) != meant && !strings.Contains(is.Name, "concurrent-") {
			t.Errorf("--%s is %q by default, and kube-controller-manager's %q; that is meant: %t", f.name, is.DefValue, f.standard, meant)
		}
	}
}

// samples are values that are no default, by the type of the flag.
var samples = map[string]string{
	"duration": "97s", "int": "7", "int32": "7", "float32": "0.25", "float64": "0.25", "string": "x", "stringSlice": "x,y", "ip": "127.0.0.9",
	"int32Slice": "29", "namedCertKey": "a.crt,a.key:a.example", "stringToString": "a,b=c",
}

// sample is a value of a flag other than its default.
func (f upstreamFlag) sample(ours *pflag.FlagSet) string {
	switch {
	case f.name == "feature-gates":
		return "AllAlpha=true"
	case f.kind == "bool" && ours.Lookup(f.name).DefValue == "true":
		return "false"
	case f.kind == "bool":
		return "true"
	}
	return samples[f.kind]
}

// TestNoFlagIsForgotten: a value of a flag changes the configuration, unless the flag accepts only
// its default.
func TestNoFlagIsForgotten(t *testing.T) {
	read := func(args ...string) (*everything, error) {
		o, flags := newEverything(), pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.SetNormalizeFunc(newRun().Flags().GetNormalizeFunc())
		for _, add := range append(o.flags(), o.cluster.Add) {
			add(flags)
		}
		err := flags.Parse(args)
		o.service.Flags, o.service.Controllers = nil, nil // they always differ, and are no configuration
		return o, err
	}
	base, err := read()
	ok(t, err)
	if same, err := read(); err != nil || !reflect.DeepEqual(base, same) {
		t.Fatalf("the same flags are not read alike (%v)", err)
	}
	still := map[string]controllerflags.Moot{}
	for _, m := range controllerflags.Moots() {
		still[m.Flag] = m
	}
	acted, ours := 0, runFlags()
	for _, f := range upstreamFlags(t) {
		m, moot := still[f.name]
		if f.of == "logs" || f.of == "global" {
			continue // of component-base, and of cobra
		}
		sample := f.sample(ours)
		if moot {
			if _, err := read("--" + f.name + "=" + strings.Trim(f.standard, "[]")); err != nil {
				t.Errorf("--%s=%s, as it is by default: %v", f.name, f.standard, err)
			}
			other, err := m.Read(sample)
			ok(t, err)
			switch _, err := read("--" + f.name + "=" + sample); {
			case m.Any || slices.Contains(m.Also, other):
				ok(t, err)
			case err == nil || !strings.Contains(err.Error(), m.Since+"; take it out"):
				t.Errorf("--%s=%s is not refused with its reason: %v", f.name, sample, err)
			}
			continue
		}
		acted++
		o, err := read("--" + f.name + "=" + sample)
		if err != nil || reflect.DeepEqual(base, o) {
			t.Errorf("--%s=%s changes nothing (%v)", f.name, sample, err)
		}
	}
	if acted < 90 {
		t.Errorf("only %d flags have an effect", acted)
	}
}

// TestFlagsThatAreMoot: a moot flag accepts kube-controller-manager's default, and the error for any
// other value has the reason.
func TestFlagsThatAreMoot(t *testing.T) {
	for flag, want := range map[string]string{
		"--namespace-sync-period=5m":                     "",
		"--namespace-sync-period=300s":                   "",
		"--namespace-sync-period=1m":                     "it is 5m0s and nothing else",
		"--endpoint-updates-batch-period=0":              "",
		"--endpoint-updates-batch-period=500ms":          "joined without waiting; take it out",
		"--endpoint-updates-batch-period=often":          "invalid duration",
		"--enable-hostpath-provisioner=false":            "",
		"--enable-hostpath-provisioner":                  "it is false and nothing else",
		"--enable-hostpath-provisioner=perhaps":          "invalid syntax",
		"--enable-dynamic-provisioning=false":            "",
		"--pv-recycler-maximum-retry=many":               "invalid syntax",
		"--pv-recycler-pod-template-filepath-nfs=":       "",
		"--pv-recycler-pod-template-filepath-nfs=/etc/p": "it is empty and nothing else",
		"--cluster-name=production":                      "",
		"--cluster_name=":                                "",
		"--cloud-provider=external":                      "",
		"--cloud-provider=aws":                           "it is empty or external and nothing else, since controllers of clouds",
		"--configure-cloud-routes=false":                 "",
		"--emulated-version=kube=1.36":                   "",
		"--emulated-version=1.35":                        "it is empty or 1.36 or kube=1.36 and nothing else",
		"--min-compatibility-version=1.35":               "",
		"--disable-http2-serving":                        "",
		"--leader-elect-resource-lock=leases":            "",
		"--leader-elect-resource-lock=endpoints":         "it is leases and nothing else",
		"--allow-metric-labels=a,b=c":                    "metric_relabel_configs",
	} {
		err := newRun().ParseFlags([]string{flag})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

// TestFlagsOfAnotherService: the error for a flag of another service names that service, and the one
// for an unknown flag names none.
func TestFlagsOfAnotherService(t *testing.T) {
	for args, want := range map[string]string{
		"reconcilers --kubeconfig=x":              "which is of millrace watcher and writer: give it there",
		"reconcilers --concurrent_rc_syncs=7":     "which is of millrace writer: give it there, or everything to millrace run",
		"watcher --kube-api-qps=7":                "which is of millrace writer",
		"watcher --leader-elect --cluster-name=x": "",
		"writer --replicas=3":                     "--help lists them",
	} {
		root := newRoot()
		root.SetOut(io.Discard)
		words := strings.Fields(args)
		cmd, rest, err := root.Find(words)
		ok(t, err)
		err = cmd.ParseFlags(rest)
		if err != nil {
			err = cmd.FlagErrorFunc()(cmd, err)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestListsAndMapsAreReadAsUpstreams: with commas, repeated flags, both spellings, and values as
// separate arguments.
func TestListsAndMapsAreReadAsUpstreams(t *testing.T) {
	flags := newRun().Flags()
	ok(t, flags.Parse([]string{
		"--controllers=*,bootstrapsigner", "--controllers", "tokencleaner", "--feature-gates=A=true,kube:B=false", "--feature_gates=C=true",
		"--requestheader-allowed-names=a,b", "--requestheader-allowed-names=c", "--allocate-node-cidrs", "--use-service-account-credentials=0",
		"--tls-sni-cert-key=a,b:x,y", "--tls-sni-cert-key=c,d", "--tls-curve-preferences=29,23", "--concurrent_rc_syncs=7", "--bind-address", "::1",
	}))
	list := func(name string) []string { return flags.Lookup(name).Value.(pflag.SliceValue).GetSlice() }
	text := func(name string) string { return flags.Lookup(name).Value.String() }
	for what, c := range map[string]struct{ is, want any }{
		"lists":            {list("controllers"), []string{"*", "bootstrapsigner", "tokencleaner"}},
		"maps":             {text("feature-gates"), "A=true,C=true,kube:B=false"},
		"names":            {list("requestheader-allowed-names"), []string{"a", "b", "c"}},
		"bools":            {[]string{text("allocate-node-cidrs"), text("use-service-account-credentials")}, []string{"true", "false"}},
		"files":            {text("tls-sni-cert-key"), "[a,b:x,y;c,d]"},
		"numbers":          {list("tls-curve-preferences"), []string{"29", "23"}},
		"another spelling": {text("concurrent-rc-syncs"), "7"},
		"addresses":        {text("bind-address"), "::1"},
	} {
		if !reflect.DeepEqual(c.is, c.want) {
			t.Errorf("%s are %v, want %v", what, c.is, c.want)
		}
	}
}

// TestKubeadmsFlagsAreTaken: all flags of kubeadm's manifest are accepted, with any ranges.
func TestKubeadmsFlagsAreTaken(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "kubeadm-flags.txt"))
	ok(t, err)
	clusters := strings.Split(string(text), "# ")[1:]
	for _, c := range clusters {
		what, lines, _ := strings.Cut(c, "\n")
		args := strings.Split(strings.TrimSpace(lines), "\n")
		o, flags := newEverything(), pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, add := range append(o.flags(), o.cluster.Add) {
			add(flags)
		}
		if err := flags.Parse(args); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := o.check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		ranges, err := rangesOf(args)
		ok(t, err)
		address, secure, err := o.service.Address()
		ok(t, err)
		if address != "127.0.0.1:10257" || !secure || !o.election.Elect || len(ranges) != strings.Count(flagOf(args, "cluster-cidr"), "/") {
			t.Errorf("%s: it serves at %s, TLS alone: %t, stands for leader: %t, and gives ranges of %v", what, address, secure, o.election.Elect, ranges)
		}
	}
	if len(clusters) != 3 {
		t.Errorf("there are %d clusters", len(clusters))
	}
}

// rangesOf are the ranges of pods that the flags of node-ipam-controller give.
func rangesOf(args []string) ([]controllers.Range, error) {
	o, flags := controllerflags.New(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Add(flags)
	err := flags.Parse(slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return !strings.Contains(arg, "cidr") && !strings.Contains(arg, "service-cluster-ip-range")
	}))
	if err != nil {
		return nil, err
	}
	config, err := o.Config()
	return config.Ranges.Cluster, err
}

// TestControllersAreUpstreams: --controllers knows every name and alias of kube-controller-manager,
// and has the same controllers on by default.
func TestControllersAreUpstreams(t *testing.T) {
	rows := table(t, "upstream-controllers.tsv")
	for _, row := range rows {
		e, known := controllers.Find(row[0])
		aliases := slices.Sorted(slices.Values(e.Aliases))
		if !known || strings.Join(aliases, ",") != row[1] || e.Off != (row[2] == "true") || e.Elsewhere != (row[3] == "true") {
			t.Errorf("%s is %+v; there its aliases are %q, it is off: %s, of a cloud: %s", row[0], e, row[1], row[2], row[3])
		}
	}
	if all := controllers.Catalog(); len(all) != len(rows) {
		t.Errorf("%d controllers are known, and there %d", len(all), len(rows))
	}
	o := controllerflags.Options{Controllers: []string{"*", "-deployment", "service", "node-route-controller"}}
	ok(t, o.Check())
	var skipped []string
	for _, e := range controllers.Skipped([]string{"service", "node-route-controller"}) {
		skipped = append(skipped, e.Name)
	}
	if got := strings.Join(skipped, " "); got != "service-lb-controller node-route-controller" {
		t.Errorf("of clouds are %s", got)
	}
	o.Controllers = []string{"-nothing"}
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), `"nothing" is not in the list of known controllers`) {
		t.Error(err)
	}
}
