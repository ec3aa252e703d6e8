package command

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// An alpha API is looked at where it was asked for, and nowhere else.
func TestFeatures(t *testing.T) {
	for given, want := range map[string]bool{
		"": false, "StorageVersionAPI=true": true, "StorageVersionAPI=false": false,
		"StorageVersionAPI=true,APIServerIdentity=false": false, "APIServerIdentity=true": false,
	} {
		o := newControllerOptions()
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.add(f)
		if err := f.Parse([]string{"--feature-gates=" + given}); err != nil {
			t.Fatal(err)
		}
		config, err := o.config()
		if err != nil || config.StorageVersions != want {
			t.Errorf("with %q storage versions are looked at: %v, %v", given, config.StorageVersions, err)
		}
	}
	o := newControllerOptions()
	o.features.set = map[string]bool{"StorageVersionApi": true}
	if _, err := o.config(); err == nil || !strings.Contains(err.Error(), "StorageVersionApi") || !strings.Contains(err.Error(), "StorageVersionAPI") {
		t.Errorf("a gate that is none: %v", err)
	}
}
