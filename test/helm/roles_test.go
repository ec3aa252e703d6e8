package helm

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// program builds millrace, in the workspace.
func program(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "millrace")
	work, err := filepath.Abs("../../go.work")
	ok(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/millrace")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOWORK="+work)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build millrace: %v\n%s", err, out)
	}
	return path
}

// catalogue returns the controllers that the chart knows, sorted.
func catalogue(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "files", "controllers.yaml"))
	ok(t, err)
	var facts struct {
		Controllers map[string]any `json:"controllers"`
	}
	ok(t, yaml.Unmarshal(text, &facts))
	return slices.Sorted(maps.Keys(facts.Controllers))
}

// TestRolesAreThoseOfTheProgram: for random choices of controllers and modes, the roles of the chart are
// those that millrace rbac prints.
func TestRolesAreThoseOfTheProgram(t *testing.T) {
	millrace, names := program(t), catalogue(t)
	random := rand.New(rand.NewPCG(20261127, 1))
	for range 25 {
		chosen, share := map[string]any{}, 1+random.IntN(8)
		for _, name := range names {
			if name != "serviceaccount-token-controller" && random.IntN(share) == 0 {
				chosen[name] = []string{"active", "shadow"}[random.IntN(2)]
			}
		}
		if len(chosen) == 0 {
			chosen[names[random.IntN(len(names))]] = "active"
			delete(chosen, "serviceaccount-token-controller")
			chosen["job-controller"] = "active"
		}
		custom := [][]any{{"*"}, {}, {"widgets.example.com", "gears.example.com"}}[random.IntN(3)]
		impersonation, watchers := []string{"constrained", "classic"}[random.IntN(2)], 1+random.IntN(2)
		vals := map[string]any{
			"controllers": map[string]any{"default": "off", "modes": chosen}, "watcher": map[string]any{"separate": watchers == 2},
			"rbac": map[string]any{"customKinds": custom, "impersonation": impersonation},
		}
		have, _, err := render(load(t), system, vals)
		ok(t, err)
		var active []string
		for _, name := range slices.Sorted(maps.Keys(chosen)) {
			if chosen[name] == "active" {
				active = append(active, name)
			}
		}
		common := []string{"--impersonation=" + impersonation, "--custom-kinds=" + strings.Trim(fmt.Sprint(custom), "[]")}
		common[1] = strings.ReplaceAll(common[1], " ", ",")
		want := printed(t, millrace, append(common, "--of=watcher", fmt.Sprintf("--watchers=%d", watchers), "--controllers="+strings.Join(slices.Sorted(maps.Keys(chosen)), ","))...)
		if len(active) > 0 {
			want = append(want, printed(t, millrace, append(common, "--of=writer", "--controllers="+strings.Join(active, ","))...)...)
		}
		for _, wrong := range differences(t, roles(have), roles(want)) {
			t.Errorf("%v, %v: %s", vals["controllers"], vals["rbac"], wrong)
		}
	}
}

// printed returns the objects that millrace rbac prints.
func printed(t *testing.T, millrace string, args ...string) []object {
	t.Helper()
	var failed bytes.Buffer
	cmd := exec.CommandContext(t.Context(), millrace, append([]string{"rbac"}, args...)...)
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("millrace rbac %v: %v\n%s", args, err, failed.Bytes())
	}
	all, err := objects(string(out))
	ok(t, err)
	return all
}

// roles returns the roles, bindings and accounts among objects, without those about metrics, which are not
// generated from rules of ours.
func roles(all []object) []object {
	return slices.DeleteFunc(slices.Clone(all), func(o object) bool {
		kind := o.text("kind")
		return !strings.HasPrefix(kind, "ClusterRole") && kind != "RoleBinding" && kind != "ServiceAccount" || strings.HasSuffix(o.text("metadata", "name"), "-delegator")
	})
}
