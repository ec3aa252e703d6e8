package observability

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files and docs/metrics.md")

const (
	golden  = "testdata/kube-controller-manager.txt"
	leftOut = "testdata/left-out.txt"
)

// rare are metrics of kube-controller-manager that exist only after the counted event has happened.
var rare = []string{"daemonset_controller_stale_sync_skips_total", "replicaset_controller_stale_sync_skips_total", "statefulset_controller_stale_sync_skips_total",
	"job_controller_stale_sync_skips_total"}

// listed are the names in the golden file that are not rare.
func listed(t *testing.T) (names []string) {
	t.Helper()
	for line := range strings.Lines(read(t, golden)) {
		if name, _, _ := strings.Cut(line, " "); !slices.Contains(rare, name) {
			names = append(names, name)
		}
	}
	return names
}

// The golden file lists exactly the metrics that kube-controller-manager really has, except those that are
// left out for a reason.
func TestTheGoldenFileIsTrue(t *testing.T) {
	out, chance := exceptions(t), seldom(t)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(here(t).kcm)) {
		if _, ok := chance[name]; !ok && reason(out, name) == "" {
			lines = append(lines, here(t).kcm[name].line())
		}
	}
	text := strings.Join(lines, "\n") + "\n"
	if *update {
		text = withRare(text, read(t, golden))
		if err := os.WriteFile(golden, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := read(t, golden)
	for line := range strings.Lines(text) {
		if !strings.Contains("\n"+want, "\n"+line) {
			t.Errorf("%s lacks what kube-controller-manager has; if that is a new version, look at what changed and use -update:\n%s", golden, line)
		}
	}
	for line := range strings.Lines(want) {
		if name, _, _ := strings.Cut(line, " "); !strings.Contains("\n"+text, "\n"+line) && !slices.Contains(rare, name) {
			t.Errorf("%s has what kube-controller-manager does not have:\n%s", golden, line)
		}
	}
	for _, e := range out {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(here(t).kcm)), e.name.MatchString) {
			t.Errorf("%s leaves out %s, which kube-controller-manager does not have", leftOut, e.name)
		}
	}
}

// withRare adds the known rare lines to the lines of a run.
func withRare(text, known string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for line := range strings.Lines(known) {
		line = strings.TrimSpace(line)
		if name, _, _ := strings.Cut(line, " "); slices.Contains(rare, name) && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// An operator with dashboards and alerts for kube-controller-manager finds every metric of our controllers
// under the same name, with the same type, labels and buckets.
func TestTheMetricsOfKubeControllerManager(t *testing.T) {
	ours := here(t).ours
	for line := range strings.Lines(read(t, golden)) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, " ")
		found, ok := ours[name]
		if !ok {
			t.Errorf("%s is missing", name)
			continue
		}
		if got := found.line(); got != line {
			t.Errorf("%s differs:\n ours    %s\n theirs  %s", name, got, line)
		}
	}
	for name := range here(t).kcm {
		if _, ok := ours[name]; !ok && strings.HasPrefix(name, "go_") {
			t.Errorf("%s is missing", name)
		}
	}
}

// The build information names the Kubernetes release that the build was made for.
func TestTheReleaseOfKubernetes(t *testing.T) {
	for version := range here(t).ours["kubernetes_build_info"].values["git_version"] {
		if !regexp.MustCompile(`^v1\.\d+\.\d+$`).MatchString(version) {
			t.Errorf("kubernetes_build_info says %q", version)
		}
	}
}

// exception is one or several metrics that Millrace does not have.
type exception struct {
	name   *regexp.Regexp
	reason string
}

func exceptions(t *testing.T) (all []exception) {
	t.Helper()
	for line := range strings.Lines(read(t, leftOut)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, ok := strings.Cut(line, " ")
		if !ok {
			t.Fatalf("%s: %s has no reason", leftOut, name)
		}
		all = append(all, exception{regexp.MustCompile(fmt.Sprintf("^(%s)$", name)), strings.TrimSpace(why)})
	}
	return all
}

func reason(all []exception, name string) string {
	for _, e := range all {
		if e.name.MatchString(name) {
			return e.reason
		}
	}
	return ""
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
