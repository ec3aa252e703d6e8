package controllerflags

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// A controller reads an API that is off by default only if its gate is on.
func TestFeatures(t *testing.T) {
	for given, want := range map[string]struct{ versions, certificates bool }{
		"": {}, "StorageVersionAPI=true": {versions: true}, "StorageVersionAPI=false": {}, "APIServerIdentity=true": {},
		"PodCertificateRequest=true": {certificates: true}, "PodCertificateRequest=false": {}, "AllBeta=true": {certificates: true},
	} {
		o := New()
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Add(f)
		if err := f.Parse([]string{"--feature-gates=" + given}); err != nil {
			t.Fatal(err)
		}
		config, err := o.Config()
		if err != nil || config.StorageVersions != want.versions || config.Gates.On(gate.PodCertificateRequest) != want.certificates {
			t.Errorf("with %q storage versions are looked at: %v, and pods' requests: %v, %v", given, config.StorageVersions, config.Gates.On(gate.PodCertificateRequest), err)
		}
	}
}

// Every gate of kube-controller-manager is accepted, at every value that upstream accepts, except
// for those whose other state Millrace does not have; the error says so. As upstream requires, the
// gates that depend on a gate are off with it, and those that it depends on are on with it.
func TestGatesAreTakenAsUpstreamTakesThem(t *testing.T) {
	for _, g := range gate.Known() {
		for _, on := range []bool{true, false} {
			with, refused := together(g.Name, on)
			set, err := (&features{set: with}).config()
			switch {
			case refused != (err != nil):
				t.Errorf("%s=%v: %v", g.Name, on, err)
			case refused && g.Fixed != "" && !strings.Contains(err.Error(), g.Fixed):
				t.Errorf("%s=%v is refused without its reason: %v", g.Name, on, err)
			case err == nil && len(g.Readers) > 0 && set.On(g.Name) != on, err == nil && len(g.Readers) == 0 && len(with) == 1 && set != nil:
				t.Errorf("%s=%v is heard as %v", g.Name, on, set)
			}
		}
	}
}

// together are a gate and those that have to be set with it; refused is true if one of them
// cannot be set.
func together(name string, on bool) (set map[string]bool, refused bool) {
	set = map[string]bool{name: on}
	all := gate.Known()
	for range all {
		for _, g := range all {
			if slices.ContainsFunc(g.Needs, func(n string) bool { is, ok := set[n]; return ok && !is }) {
				set[g.Name] = false
			}
			if set[g.Name] {
				for _, n := range g.Needs {
					set[n] = true
				}
			}
		}
	}
	for _, g := range all {
		if is, ok := set[g.Name]; ok && is != g.On && (g.Locked || g.Fixed != "") {
			refused = true
		}
	}
	return set, refused
}

func TestGatesByGroupAndByAnotherName(t *testing.T) {
	for _, c := range []struct {
		set   map[string]bool
		gate  string
		on    bool
		wrong []string
	}{
		{map[string]bool{"AllAlpha": true}, gate.StorageVersionAPI, true, nil},
		{map[string]bool{"AllAlpha": true, gate.StorageVersionAPI: false}, gate.StorageVersionAPI, false, nil},
		{map[string]bool{"AllBeta": false}, gate.APIServerIdentity, false, nil},
		{map[string]bool{"AllBeta": false, "kube:" + gate.APIServerIdentity: true}, gate.APIServerIdentity, true, nil},
		{map[string]bool{"StorageVersionApi": true}, "", false, []string{"StorageVersionApi", "did you mean StorageVersionAPI?"}},
		{map[string]bool{"StorageVersionAP": true}, "", false, []string{"did you mean StorageVersionAPI?"}},
		{map[string]bool{"StorageVersoinAPI": true}, "", false, []string{"did you mean StorageVersionAPI?"}},
		{map[string]bool{"StorageVersionAPI": true, "APIServerIdentity": false}, "", false, []string{"StorageVersionAPI is enabled, but depends on"}},
		{map[string]bool{"PodLevelResources": false}, "", false, []string{"depends on features that are disabled: [PodLevelResources]"}},
		{map[string]bool{"Nothing": true}, "", false, []string{"no gate Nothing; take it out"}},
		{map[string]bool{"wardle:Fish": true}, "", false, []string{"the component wardle"}},
	} {
		set, err := (&features{set: c.set}).config()
		if len(c.wrong) == 0 {
			if err != nil || set.On(c.gate) != c.on {
				t.Errorf("with %v %s is %v: %v", c.set, c.gate, set, err)
			}
			continue
		}
		for _, part := range c.wrong {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("with %v: %v, want %q", c.set, err, part)
			}
		}
	}
}
