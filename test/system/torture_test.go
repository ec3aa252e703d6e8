package system

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestTorture is a short `make torture`: a control plane of its own, three servers of the bus and two
// replicas of each service under load, with a fault about every second, and the independent checker at the
// end. The seed kills every kind of process, and has each kind of fault that is quickly over, so that the
// same faults happen each time.
func TestTorture(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "torture")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/millrace/millrace/cmd/torture")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build torture: %v\n%s", err, out)
	}
	// Enough must have happened for the verdict to mean something. On a busy machine users get less done:
	// then the test runs again, with more time before the first fault.
	few := ""
	for _, calm := range []time.Duration{2 * time.Second, 30 * time.Second, 2 * time.Minute} {
		report := filepath.Join(dir, fmt.Sprint("report-", calm, ".json"))
		run := exec.CommandContext(t.Context(), binary, "--seed=1208", "--singles=0", "--disks=false", "--users=2", "--faults=25", "--time=25s", "--calm="+calm.String(),
			"--patience=10m", "--dir="+filepath.Join(dir, "run-"+calm.String()), "--report="+report)
		out, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("torture: %v\n%s", err, out)
		}
		t.Logf("%s", out)
		if few = tooFew(t, report); few == "" {
			return
		}
	}
	t.Errorf("the run did too little to show anything: %s", few)
}

// tooFew describes the run if it is too small to show anything.
func tooFew(t *testing.T, report string) string {
	t.Helper()
	var found struct {
		Strikes []struct{ Hit int } `json:"strikes"`
		Figures struct{ Changes, Turns, Writes, Deltas int }
	}
	text, err := os.ReadFile(report)
	must(t, err)
	must(t, json.Unmarshal(text, &found))
	played := 0
	for _, s := range found.Strikes {
		if s.Hit > 0 {
			played++
		}
	}
	if f := found.Figures; played < 20 || f.Changes < 200 || f.Turns < 50 || f.Writes < 50 || f.Deltas < 200 {
		return fmt.Sprintf("%d faults were played, and the figures are %+v", played, f)
	}
	return ""
}
