package command

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/zpages"
)

// fieldsOf are the fields of a configuration, by path.
func fieldsOf(config map[string]any) map[string]any {
	all := map[string]any{}
	var look func(path string, value any)
	look = func(path string, value any) {
		inner, is := value.(map[string]any)
		if !is {
			all[strings.TrimPrefix(path, ".")] = value
		}
		for name, value := range inner {
			look(path+"."+name, value)
		}
	}
	look("", config)
	return all
}

// unset are the fields of upstream's configuration that no flag sets.
var unset = []string{
	"Generic.Address", "Generic.Port", "Generic.ClientConnection.acceptContentTypes",
	"Generic.LeaderMigration.controllerLeaders", "Generic.LeaderMigration.leaderName", "Generic.LeaderMigration.resourceLock",
	"GarbageCollectorController.GCIgnoredResources", "NodeLifecycleController.PodEvictionTimeout",
	"PersistentVolumeBinderController.VolumeConfiguration.PersistentVolumeRecyclerConfiguration.MaximumRetry",
}

// TestTheConfigurationIsUpstreams: with the same flags, each field has upstream's name and
// kube-controller-manager's value, and no field that a flag sets is missing.
func TestTheConfigurationIsUpstreams(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "upstream-configz.json"))
	ok(t, err)
	var theirs struct {
		Flags  []string
		Name   string
		Config map[string]any
	}
	ok(t, json.Unmarshal(text, &theirs))
	o, flags := newEverything(), pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SetNormalizeFunc(newRun().Flags().GetNormalizeFunc())
	for _, add := range append(o.flags(), o.cluster.Add) {
		add(flags)
	}
	ok(t, flags.Parse(theirs.Flags))
	told, err := json.Marshal(zpages.Config(flags, controllerflags.Choice{}))
	ok(t, err)
	var ours map[string]map[string]any
	ok(t, json.Unmarshal(told, &ours))
	want, got := fieldsOf(theirs.Config), fieldsOf(ours[theirs.Name])
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if is, there := want[path]; !there || !reflect.DeepEqual(is, got[path]) {
			t.Errorf("%s is %v, and kube-controller-manager's is %v (there: %t)", path, got[path], is, there)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if _, there := got[path]; there == slices.Contains(unset, path) {
			t.Errorf("%s is told: %t", path, there)
		}
	}
	if len(got) < 100 {
		t.Errorf("only %d fields are told", len(got))
	}
}

// TestAProcessTellsWhatRuns: /configz has the selected controllers with their settings, and which of
// them are in shadow.
func TestAProcessTellsWhatRuns(t *testing.T) {
	o := newEverything()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, add := range o.flags() {
		add(flags)
	}
	ok(t, flags.Parse([]string{"--controllers=ttl,pod-garbage-collector-controller,job", "--shadow=job", "--terminated-pod-gc-threshold=7"}))
	_, err := o.ctrl.Choose()
	ok(t, err)
	code, text := asked(t, &o.service, "/configz", "")
	var told struct {
		Millrace struct {
			Controllers []struct {
				Name     string
				Shadow   bool
				Settings json.RawMessage
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &told); err != nil || code != http.StatusOK {
		t.Fatalf("it answers %d (%v):\n%s", code, err, text)
	}
	names := map[string]string{}
	for _, c := range told.Millrace.Controllers {
		names[c.Name] = string(c.Settings)
		if c.Shadow != (c.Name == "job-controller") {
			t.Errorf("%s only looks on: %t", c.Name, c.Shadow)
		}
	}
	if len(names) != 3 || names["pod-garbage-collector-controller"] != `{"terminatedPods":7}` {
		t.Errorf("it tells of %v", names)
	}
	o.service.Controllers = nil
	if code, _ := asked(t, &o.service, "/configz", ""); code != http.StatusNotFound {
		t.Errorf("a process without controllers answers %d", code)
	}
}
