package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/services/reconcilers/replay"
	"github.com/millrace/millrace/services/reconcilers/story"
)

// TestThePastIsDecidedAgain rolls a Deployment out while replicas of the reconcilers and the bus are killed,
// and replays all decisions with the commands: from the bus, and from a file without a bus.
func TestThePastIsDecidedAgain(t *testing.T) {
	s := here(t)
	m := s.separate(t, 2, s.credentials())
	a := s.arena(t, "again")
	beginRollout(t, a)
	p := m.active(t, "reconcilers")
	p.kill(t)
	m.forget("reconcilers", p)
	m.add("reconcilers").ready(t)
	m.bus.kill(t)
	m.startBus()
	until(t, a, clustertest.RolledOut("web", second, crowd))
	_, err := a.Scale(t.Context(), "web", crowd/2)
	must(t, err)
	until(t, a, clustertest.RolledOut("web", second, crowd/2))

	r := asker{site: s, nats: m.nats, namespace: "again"}
	t.Run("replay", func(t *testing.T) { replaysAll(t, r) })
	t.Run("explain", func(t *testing.T) { explainsATurn(t, r) })
	file := filepath.Join(t.TempDir(), "again.millrace")
	if out, err := r.ask(t, "export", file); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Run("replay of a file", func(t *testing.T) { replaysAll(t, r, "--record="+file) })
	t.Run("clear errors", func(t *testing.T) { replaysNothing(t, r, file) })
	clear(t, a)
}

func replaysAll(t *testing.T, r asker, more ...string) {
	var got replay.Summary
	r.json(t, &got, append([]string{"replay", "--strict"}, more...)...)
	if got.Same != got.Turns || got.Turns < 2*crowd/5 || got.Deltas < 2*crowd {
		t.Errorf("replay --strict counts %+v; want all turns the same, and as many turns and deltas as the rollout has", got)
	}
	text, err := r.ask(t, append([]string{"replay", "--controller=replicaset"}, more...)...)
	if must(t, err); !strings.Contains(text, "decided the same, byte for byte") || !strings.Contains(text, "0 decided otherwise") {
		t.Errorf("replay prints\n%s\nwant \"decided the same, byte for byte\" and \"0 decided otherwise\"", text)
	}
}

// explainsATurn saves the turn that last scaled the Deployment's ReplicaSet as a story.
func explainsATurn(t *testing.T, r asker) {
	file := filepath.Join(t.TempDir(), "scaled.txtar")
	if out, err := r.ask(t, "explain", "deploy/web", "--save="+file); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	told, err := story.Parse(text)
	must(t, err)
	if !strings.Contains(string(told.View), "deployment:") || !strings.Contains(string(told.Decision), "deployments.apps:again/web/status") {
		t.Errorf("explain --save wrote the story\n%s\nwant the deployment in the view, and the write of its status in the decision", text)
	}
	if _, err := r.ask(t, "explain", "deploy/web", "--save="+file); err == nil || !strings.Contains(err.Error(), "--overwrite") {
		t.Errorf("explain --save over a file that exists: %v, want an error that names --overwrite", err)
	}
}

func replaysNothing(t *testing.T, r asker, file string) {
	for want, args := range map[string][]string{
		"no turn on record to be replayed":        {"replay", "--strict", "--key=again/absent"},
		"is not in the list of known controllers": {"replay", "--controller=nonsense"},
		"--until":            {"replay", "--since=10s", "--until=20s"},
		"is not on record":   {"explain", "replicaset-controller/99999999"},
		"as CONTROLLER/TURN": {"explain", "nonsense/1"},
		"none of its last":   {"explain", "ns/again"},
	} {
		if out, err := r.ask(t, append(args, "--record="+file)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("millrace %s: %v, want an error with %q\n%s", strings.Join(args, " "), err, want, out)
		}
	}
}
