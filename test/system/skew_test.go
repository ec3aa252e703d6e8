package system

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/clustertest"
)

// released is the version that users upgrade from, and may have to go back to: the last commit before
// replicas shared work and messages had sums.
const released = "0f13c3b1c0182c1b8cf73c6b9b31388a28a78178"

// TestVersionsTogether replaces one service after the other by another version, with work in progress and
// both versions running at a time; to a later version, and back. Each version reads what the other has
// stored.
func TestVersionsTogether(t *testing.T) {
	s := here(t)
	older := s.older(t)
	for _, way := range []struct {
		name     string
		from, to *site
		order    []string
		left     func(t *testing.T, nats, service string) // what else must be done when a service has ended
	}{
		{"upgrade", older, s, []string{"reconcilers", "writer", "watcher"}, func(*testing.T, string, string) {}},
		// The older reconcilers and writers read streams beside the logs, which only an older watcher makes.
		{"downgrade", s, older, []string{"watcher", "reconcilers", "writer"}, unrank},
	} {
		t.Run(way.name, func(t *testing.T) {
			m := way.from.separateFrom(t, 1, s.credentials(), time.Now().Add(time.Hour)) // one version signs nothing
			a := s.arena(t, "skew-"+way.name)
			must(t, a.Deploy(t.Context(), "web", first, 5))
			until(t, a, clustertest.RolledOut("web", first, 5))
			m.site = way.to
			next, other := second, first
			for _, name := range way.order {
				leaving := m.services[name]
				m.add(name).ready(t)
				heal(t, a, 5)
				must(t, a.SetImage(t.Context(), "web", next))
				leaving[0].stop(t)
				way.left(t, m.nats, name)
				until(t, a, clustertest.RolledOut("web", next, 5))
				next, other = other, next
			}
			m.bus.stop(t)
			m.startBus()
			heal(t, a, 5)
			clear(t, a)
			if most := a.Most(); most > 7 {
				t.Errorf("%d pods at a time, want at most 5 and 2 more while rolling out", most)
			}
		})
	}
}

// unrank deletes the durable consumers of a service, whose deliveries have ranks: a version that does not
// know ranks gets none of them. That version creates the consumers again, and recognises the messages that
// have outcomes.
func unrank(t *testing.T, nats, service string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience) // without a deadline it is nats.go's, which is seconds
	defer cancel()
	conn, err := natsgo.Connect("nats://"+nats, natsgo.Timeout(patience))
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	all := js.ListStreams(ctx)
	for info := range all.Info() {
		if (service == "writer") != strings.HasPrefix(info.Config.Name, "TURN_") || service == "watcher" {
			continue
		}
		stream, err := js.Stream(ctx, info.Config.Name)
		must(t, err)
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			if c.Config.PriorityPolicy != jetstream.PriorityPolicyNone {
				must(t, stream.DeleteConsumer(ctx, c.Name))
			}
		}
		must(t, consumers.Err())
	}
	must(t, all.Err())
}

// heal deletes some Pods, one after the other, and waits for their replacements.
func heal(t *testing.T, a *clustertest.Arena, replicas int) {
	t.Helper()
	for range 3 {
		created := a.Created()
		_, err := a.DeletePod(t.Context())
		must(t, err)
		until(t, a, clustertest.Replaced(created, replicas))
		if now := a.Created(); now != created+1 {
			t.Errorf("%d pods were created for one that was deleted, want 1", now-created)
		}
	}
}

// older is the site with the program of the last release, built from this repository's history.
func (s *site) older(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "archive", "--format=tar", released)
	archive.Dir = filepath.Join("..", "..")
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	var said bytes.Buffer
	archive.Stderr, unpack.Stderr = &said, &said
	var err error
	unpack.Stdin, err = archive.StdoutPipe()
	must(t, err)
	must(t, unpack.Start())
	if err := archive.Run(); err != nil {
		t.Fatalf("read %s from the history, which has to be whole: %v\n%s", released, err, said.String())
	}
	must(t, unpack.Wait())
	older := *s
	older.keyless = true // it has no flags for keys
	older.binary = filepath.Join(dir, "millrace-older")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", older.binary, "./cmd/millrace") // trimmed: the next run finds it in the cache
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK="+filepath.Join(dir, "go.work"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("build %s: %w\n%s", released, err, out))
	}
	return &older
}
