package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/replay"
	"github.com/millrace/millrace/services/reconcilers/story"
	"github.com/millrace/millrace/test/sim/world"
)

func replayed(t *testing.T, w *world.World, o replay.Options, each func(replay.Case) error) replay.Summary {
	t.Helper()
	if o.Make == nil {
		o.Make = controllers.Again
	}
	s, err := replay.Run(context.Background(), w.Archive(), o, each)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// whole are the shapes in which no stream loses messages or is read from an old copy: every
// turn can be judged there.
var whole = []string{"calm", "crashes", "stalls"}

// Whatever happens to a world (replicas that start, stop, stall and read old copies, epochs,
// losses), a replay of its record decides the same, to the byte.
func TestEveryRecordIsReplayedToTheLetter(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var total replay.Summary
			// Of a few, one that reads old copies may outweigh the others: then more are played.
			worlds, played := max(*n/6, 30), uint64(0)
			for at := uint64(0); at < worlds || at < 10*worlds && total.Same < total.Turns*2/3; at++ {
				played++
				options := s.options
				options.Seed, options.Mute = *seed+at, true
				w := lives(t, options, s.controllers())
				got := replayed(t, w, replay.Options{Remembered: 8}, func(c replay.Case) error {
					if c.Verdict == replay.Differs || c.Verdict == replay.Unjudged && slices.Contains(whole, name) {
						return fmt.Errorf("turn %d of %s for %v is %s (%s %s): now %+v%s, and recorded is %+v\n%s", c.Sequence, c.Controller, c.Turn.Key, c.Verdict, c.Why, c.Detail, c.Now, c.Broken, c.Turn, again(name, options.Seed))
					}
					return nil
				})
				total.Turns, total.Same, total.Passes = total.Turns+got.Turns, total.Same+got.Same, max(total.Passes, got.Passes)
			}
			if total.Same == 0 || total.Same < total.Turns*2/3 {
				t.Errorf("only %d of %d turns could be judged", total.Same, total.Turns)
			}
			t.Logf("%d turns of %d worlds: %d the same; %d passes at most", total.Turns, played, total.Same, total.Passes)
		})
	}
}

// slip is a controller with one thing wrong in what it decides.
type slip struct {
	reconcile.Any
	wrong func(events.Key, *reconcile.Decision)
}

func (s slip) Look(view reconcile.Snapshot, k events.Key) (func(time.Time) reconcile.Decision, bool) {
	decide, ok := s.Any.Look(view, k)
	return func(now time.Time) reconcile.Decision {
		d := decide(now)
		s.wrong(k, &d)
		return d
	}, ok
}

// Other code decides something differently, and a replay says where.
func TestAReplayNoticesOtherCode(t *testing.T) {
	options := shapes["calm"].options
	options.Mute = true
	w := lives(t, options, workloadsControllers())
	if s := replayed(t, w, replay.Options{}, func(replay.Case) error { return nil }); s.Same != s.Turns || s.Turns == 0 {
		t.Fatalf("the same code does not decide the same: %+v", s)
	}
	for what, wrong := range map[string]func(events.Key, *reconcile.Decision){
		"another reason": func(_ events.Key, d *reconcile.Decision) { d.Because += "!" },
		"one command less": func(_ events.Key, d *reconcile.Decision) {
			d.Commands = d.Commands[:max(len(d.Commands), 1)-1]
		},
		"another body": func(_ events.Key, d *reconcile.Decision) {
			for i := range d.Commands {
				d.Commands[i].Body = append(slices.Clone(d.Commands[i].Body), ' ', '1')
			}
		},
		"no condition": func(_ events.Key, d *reconcile.Decision) {
			for i := range d.Commands {
				d.Commands[i].If, d.Commands[i].Name = nil, d.Commands[i].Name+"x"
			}
		},
		"another wake": func(_ events.Key, d *reconcile.Decision) { d.WakeAt = d.WakeAt.Add(time.Nanosecond) },
		"a panic":      func(events.Key, *reconcile.Decision) { panic("broken") },
	} {
		o := replay.Options{Controllers: []string{"replicaset-controller"}, Make: func(name string, settings json.RawMessage) (reconcile.Any, error) {
			c, err := controllers.Again(name, settings)
			return slip{c, wrong}, err
		}}
		differ := 0
		s := replayed(t, w, o, func(c replay.Case) error {
			if c.Verdict == replay.Differs && (c.Now != nil) != (c.Broken != "") {
				differ++
			}
			return nil
		})
		if differ == 0 || s.Differ != differ {
			t.Errorf("%s: %d turns differ, and %d are shown", what, s.Differ, differ)
		}
	}
}

// Every decision of a controller can be told as a story, and the story gives the same decision
// when it is played.
func TestEveryTurnIsAStory(t *testing.T) {
	told := map[string]int{}
	for seed := range uint64(30) {
		options := shapes["everything"].options
		options.Seed, options.Mute, options.Faults = seed, true, 2
		w := lives(t, options, everything())
		replayed(t, w, replay.Options{Views: true}, func(c replay.Case) error {
			if c.Verdict != replay.Same {
				return nil
			}
			s, err := c.Story()
			if err != nil {
				return err
			}
			if s, err = story.Parse(s.Format()); err != nil {
				return err
			}
			if err := plays(c, s); err != nil {
				return fmt.Errorf("%w\n%s", err, s.Format())
			}
			told[c.Controller]++
			return nil
		})
	}
	for _, c := range everything() {
		if name := c.Describe().Name; told[name] == 0 {
			t.Errorf("no turn of %s was told", name)
		}
	}
}

// plays is an error unless a story holds with the controller of this code.
func plays(c replay.Case, s story.Story) error {
	controller, err := controllers.Again(c.Controller, c.Turn.Settings)
	if err != nil {
		return err
	}
	view, err := yaml.YAMLToJSON(s.View)
	if err != nil {
		return err
	}
	d, err := controller.Judge(view, s.Now)
	if err != nil {
		return err
	}
	if again, err := story.Render(d); err != nil || string(again) != string(s.Decision) {
		return fmt.Errorf("the story of turn %d of %s says another thing when it is played: %s %v", c.Sequence, c.Controller, again, err)
	}
	return nil
}
