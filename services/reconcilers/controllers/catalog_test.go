package controllers

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

var config = Config{RootCA: []byte("CERTIFICATE"), Tokens: true, Signers: Whole().Signers, StorageVersions: true, Gates: Whole().Gates, EndpointsPerSlice: 7, MirroredPerSubset: 8, TerminatedPods: 9, QuotaPeriod: 11, TokenPeriod: 12, Nodes: Nodes{Grace: 12, Startup: 13, Rate: 14, Secondary: 15, Many: 16, Large: 17}, Ranges: Ranges{Cluster: []Range{{CIDR: "10.0.0.0/16", Mask: 24}}, Services: []string{"10.0.0.0/24"}}, Autoscaling: Autoscaling{Period: 18, Stabilization: 19, Tolerance: 20, Startup: 21, Readiness: 22}, Attaching: Attaching{Patient: true}}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Catalog() {
		for _, name := range append([]string{e.Name}, e.Aliases...) {
			if seen[name] {
				t.Errorf("%s is in the catalogue twice", name)
			}
			seen[name] = true
		}
	}
	if n := len(Catalog()); n != 52 {
		t.Errorf("%d controllers, want the 49 of upstream and the 3 of its clouds", n)
	}
}

func TestLinesAreTheirControllers(t *testing.T) {
	identities := map[string]bool{}
	for _, e := range Catalog() {
		if !e.Exists() {
			continue
		}
		d := e.make(config).Describe()
		if d.Name != e.Name || !slices.Equal(d.Aliases, e.Aliases) {
			t.Errorf("the line of %s %v has the controller %s %v", e.Name, e.Aliases, d.Name, d.Aliases)
		}
		if len(d.Inputs) == 0 || len(d.Writes)+len(d.Events) == 0 {
			t.Errorf("%s reads or writes nothing", e.Name)
		}
		// Upstream: what was one controller of nodes, and one of certificates, became several.
		if identities[d.Identity] && d.Identity != "node-controller" && d.Identity != "certificate-controller" {
			t.Errorf("%s shares its identity %s", e.Name, d.Identity)
		}
		identities[d.Identity] = true
	}
}

func TestSelect(t *testing.T) {
	var all, withoutCA []string
	for _, e := range Catalog() {
		if e.Exists() && !e.Off {
			all = append(all, e.Name)
			if e.ready == nil || e.ready(Config{}) {
				withoutCA = append(withoutCA, e.Name)
			}
		}
	}
	if len(all) == len(withoutCA) {
		t.Fatal("no controller needs a configuration: the test has lost its point")
	}
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == name })
	}
	gc, sa := "garbage-collector-controller", "serviceaccount-controller"
	for _, c := range []struct {
		list   string
		config Config
		want   []string
		wrong  string // a part of the error
	}{
		{"*", config, all, ""},
		{"*", Config{}, withoutCA, ""},
		{"", config, nil, `"" is not in the list`},
		{gc, config, []string{gc}, ""},
		{"garbagecollector", config, []string{gc}, ""},
		{"serviceaccount,garbagecollector", config, []string{gc, sa}, ""},
		{"*,-garbagecollector", config, without(gc), ""},
		{"-garbagecollector,*", config, without(gc), ""},
		{"-garbage-collector-controller,garbagecollector,*", config, without(gc), ""},
		{"garbagecollector,-garbage-collector-controller", config, []string{gc}, ""},
		{"-garbagecollector", config, nil, ""},
		{" * , -garbagecollector ", config, without(gc), ""},
		{"root-ca-cert-publisher", Config{}, nil, ""},
		{"root-ca-cert-publisher", config, []string{"root-ca-certificate-publisher-controller"}, ""},
		{"*,-bootstrapsigner,-route", config, all, ""},
		{"*,service", config, all, ""},
		{"tokencleaner,garbagecollector", config, []string{gc, "token-cleaner-controller"}, ""},
		{"tokencleaner,bootstrapsigner", config, []string{"bootstrap-signer-controller", "token-cleaner-controller"}, ""},
		{"selinux-warning-controller", config, []string{"selinux-warning-controller"}, ""},
		{"-attachdetach,attachdetach,garbagecollector", config, []string{gc}, ""},
		{"*,-nonsense", config, nil, `"-nonsense" is not in the list of known controllers`},
		{"-*", config, nil, `"-*" is not in the list of known controllers`},
		{"device-taint-eviction-controller", Config{}, []string{"device-taint-eviction-controller"}, ""},
		{"device-taint-eviction-controller", Config{Gates: gate.Set{gate.DRADeviceTaints: false}}, nil, ""},
	} {
		selected, err := Select(strings.Split(c.list, ","), c.config)
		if got := names(selected); !slices.Equal(got, c.want) {
			t.Errorf("%q selects %v, want %v", c.list, got, c.want)
		}
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%q: %v", c.list, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%q: error %v, want one with %q", c.list, err, c.wrong)
		}
	}
	for list, want := range map[string]string{
		"*":                         "podgroup-protection-controller serviceaccount-token-controller root-ca-certificate-publisher-controller certificatesigningrequest-signing-controller podcertificaterequest-cleaner-controller kube-apiserver-serving-clustertrustbundle-publisher-controller node-ipam-controller resourcepoolstatusrequest-controller storageversion-garbage-collector-controller storage-version-migrator-controller",
		"*,-root-ca-cert-publisher": "podgroup-protection-controller serviceaccount-token-controller certificatesigningrequest-signing-controller podcertificaterequest-cleaner-controller kube-apiserver-serving-clustertrustbundle-publisher-controller node-ipam-controller resourcepoolstatusrequest-controller storageversion-garbage-collector-controller storage-version-migrator-controller",
		"serviceaccount-token":      "serviceaccount-token-controller",
		"garbagecollector":          "",
		"-serviceaccount-token,-root-ca-cert-publisher,-podcertificaterequest-cleaner-controller,-csrsigning,-kube-apiserver-serving-clustertrustbundle-publisher-controller,-storage-version-gc,-podgroup-protection-controller,-svm,-nodeipam,-resourcepoolstatusrequest-controller,*": "",
	} {
		var lacking []string
		for _, e := range Lacking(strings.Split(list, ","), Config{}) {
			if e.Needs == "" {
				t.Errorf("%s lacks a flag that has no name", e.Name)
			}
			lacking = append(lacking, e.Name)
		}
		if got := strings.Join(lacking, " "); got != want {
			t.Errorf("%q: without any flag %q do not run, want %q", list, got, want)
		}
		if got := Lacking(strings.Split(list, ","), config); len(got) > 0 {
			t.Errorf("%q: with every flag %v do not run", list, got)
		}
	}
	every, err := Select(Everything(), config)
	if got, there := names(every), names(everyone()); err != nil || !slices.Equal(got, there) || len(got) <= len(all) {
		t.Errorf("the list of everything selects %v (%v), want %v", got, err, there)
	}
	if selected, err := Select(nil, config); err != nil || len(selected) > 0 {
		t.Errorf("an empty list selects %v, %v", names(selected), err)
	}
}

// A list may switch off a controller that Millrace does not have, but not select it by name.
func TestSelectWhatIsMissing(t *testing.T) {
	whole := catalog
	t.Cleanup(func() { catalog = whole })
	catalog = append(slices.Clone(whole), Entry{Name: "new-controller", Aliases: []string{"new"}}, Entry{Name: "newer-controller", Off: true})
	for list, wrong := range map[string]string{
		"*,-garbagecollector":            "",
		"*,-new,-newer-controller":       "",
		"*,new":                          "does not have new-controller yet; take it out",
		"newer-controller":               "does not have newer-controller yet; take it out",
		"newer-controller,ttl,new":       "does not have new-controller, newer-controller yet; take them out",
		"*,newer-controller,-new":        "does not have newer-controller yet; take it out",
		"-new,new,garbagecollector":      "",
		"new,-new,garbagecollector,nope": `"nope" is not in the list`,
	} {
		selected, err := Select(strings.Split(list, ","), config)
		if wrong == "" && (err != nil || len(selected) == 0) || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%q selects %v: %v", list, names(selected), err)
		}
	}
}

// A controller with a configuration records it as its settings, since a replay would
// otherwise decide with others.
func TestControllersAreMadeAgainFromWhatTheyRecord(t *testing.T) {
	configured := 0
	for _, e := range Catalog() {
		if !e.Exists() {
			continue
		}
		settings := e.make(config).Describe().Settings
		if len(settings) > 0 {
			configured++
		}
		if none := e.make(Config{}).Describe().Settings; (e.ready != nil && !e.ready(Config{}) || string(none) != string(settings)) != (len(settings) > 0) {
			t.Errorf("%s needs a configuration and records the settings %s", e.Name, settings)
		}
		again, err := e.Again(settings)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}
		if got := again.Describe().Settings; string(got) != string(settings) {
			t.Errorf("%s was made with %s, and again with %s", e.Name, settings, got)
		}
	}
	if configured == 0 {
		t.Fatal("no controller records settings: the test has lost its point")
	}
	publisher, _ := Find("root-ca-cert-publisher")
	for settings, want := range map[string]string{"": "are not on record", `{"newer":1}`: "unknown field", `{`: "read its recorded settings"} {
		if _, err := publisher.Again([]byte(settings)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("made with %q: %v, want an error with %q", settings, err, want)
		}
	}
	if _, err := Again("nonsense", nil); err == nil || !strings.Contains(err.Error(), "does not know it") {
		t.Errorf("made an unknown controller: %v", err)
	}
	missing, _ := Find("cloud-node-lifecycle")
	if _, err := missing.Again(nil); err == nil || !strings.Contains(err.Error(), "does not have it") {
		t.Errorf("made what does not exist: %v", err)
	}
}

// Controllers that only a cloud-controller-manager runs are known by name, and skipped if selected.
func TestControllersOfCloudsAreSkipped(t *testing.T) {
	const all = "service-lb-controller node-route-controller cloud-node-lifecycle-controller"
	for list, want := range map[string]string{
		"*": all, "service": "service-lb-controller", "*,-route,-cloud-node-lifecycle-controller": "service-lb-controller", "garbagecollector": "", "*,nonsense": "",
	} {
		var skipped []string
		for _, e := range Skipped(strings.Split(list, ",")) {
			skipped = append(skipped, e.Name)
		}
		if got := strings.Join(skipped, " "); got != want {
			t.Errorf("%q: skipped are %q, want %q", list, got, want)
		}
	}
}

func names(selected []reconcile.Any) []string {
	var names []string
	for _, c := range selected {
		names = append(names, c.Describe().Name)
	}
	return names
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		list  string
		want  []kinds.Name
		every bool
	}{
		{"garbagecollector", nil, true},
		{"serviceaccount", []kinds.Name{"namespaces", "serviceaccounts"}, false},
		{"root-ca-cert-publisher,serviceaccount,garbagecollector", []kinds.Name{"configmaps", "namespaces", "serviceaccounts"}, true},
	} {
		selected, err := Select(strings.Split(c.list, ","), config)
		if err != nil {
			t.Fatal(err)
		}
		full, every := Kinds(selected)
		var got []kinds.Name
		for _, k := range full {
			got = append(got, k.Name)
		}
		if !slices.Equal(got, c.want) || every != c.every {
			t.Errorf("%s reads %v, every %v; want %v, %v", c.list, got, every, c.want, c.every)
		}
	}
}

func TestProfiles(t *testing.T) {
	byName := map[string]Profile{}
	for _, p := range Profiles() {
		byName[p.Name] = p
	}
	for _, e := range Catalog() {
		if _, ok := byName[e.Name]; ok != e.Exists() {
			t.Errorf("%s has a profile: %v, exists: %v", e.Name, ok, e.Exists())
		}
	}
	gc := byName["garbage-collector-controller"]
	if gc.Identity != "generic-garbage-collector" || gc.Source != "garbage-collector-controller" {
		t.Errorf("the garbage collector is %s and tells as %s", gc.Identity, gc.Source)
	}
	if !gc.Promise.Allows(events.Command{Verb: events.VerbDelete, Kind: "widgets.example.com"}) ||
		gc.Promise.Allows(events.Command{Verb: events.VerbCreate, Kind: "pods"}) {
		t.Errorf("the garbage collector promises %+v", gc.Promise)
	}
}
