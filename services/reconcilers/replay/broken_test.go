package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

var errBroken = errors.New("the disk is broken")

// broken is an archive of which one call fails. question names the call, and its stream if
// it has one.
type broken struct {
	bus.Archive
	question string
}

func (b broken) fails(question string) error {
	if b.question == question {
		return errBroken
	}
	return nil
}

func (b broken) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	found, err := b.Archive.Kinds(ctx)
	return found, errors.Join(err, b.fails("kinds"))
}

func (b broken) Controllers(ctx context.Context) ([]string, error) {
	found, err := b.Archive.Controllers(ctx)
	return found, errors.Join(err, b.fails("controllers"))
}

func (b broken) StreamState(ctx context.Context, stream string) (bus.State, error) {
	if err := b.fails("state " + stream); err != nil {
		return bus.State{}, err
	}
	return b.Archive.StreamState(ctx, stream)
}

func (b broken) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	if err := b.fails("read " + p.Stream); err != nil {
		return err
	}
	return b.Archive.Read(ctx, p, handle)
}

func (b broken) Next(ctx context.Context, stream, at string, from uint64) (events.Message, bool, error) {
	if err := b.fails("next " + stream); err != nil {
		return events.Message{}, false, err
	}
	return b.Archive.Next(ctx, stream, at, from)
}

// A record that cannot be read ends a replay with an error, and is no agreement.
func TestARecordThatCannotBeReadEndsIt(t *testing.T) {
	log := subject.LogStream(kinds.ConfigMaps.Name)
	for question, want := range map[string]string{
		"kinds":                                  "look which kinds are on record",
		"controllers":                            "look which controllers are on record",
		"state " + subject.TurnStream(counter):   "read the turns of counter",
		"read " + subject.TurnStream(counter):    "read the turns of counter",
		"state " + log:                           "begin with the log of configmaps",
		"read " + log:                            "read the log of configmaps",
		"read " + subject.OutcomeStream(counter): "read the outcomes of counter",
		"next " + subject.OutcomeStream(counter): "look for an outcome of counter",
		"":                                       "",
	} {
		tell(t, func(w *world) {
			w.is("a")
			first := w.decided(1)
			w.failed(first, "quota")
			w.decided(1)
			if strings.HasPrefix(question, "next") { // the replay looks up an outcome that it has not read on the way
				turn := w.decide(1, "")
				turn.Heard = map[events.Lane]events.Heard{events.LaneWrite: {Turn: 3, At: time.Now()}}
				w.store(turn)
			}
			s, err := replay.Run(context.WithoutCancel(w.Context()), broken{w.bus, question}, replay.Options{Make: again}, func(replay.Case) error { return nil })
			switch {
			case want == "" && (err != nil || s.Same != 2):
				w.Errorf("with no stream broken the replay is %+v, %v; want two the same", s, err)
			case want != "" && (!errors.Is(err, errBroken) || !strings.Contains(err.Error(), want)):
				w.Errorf("%s fails: %+v, %v; want %q", question, s, err, want)
			}
		})
	}
}

// A summary has the times at which the first and the last turn were stored.
func TestASummarySaysFromWhenToWhen(t *testing.T) {
	tell(t, func(w *world) {
		w.is("a")
		for range 3 {
			w.decided(1)
			w.wait(time.Minute)
		}
		s, cases := w.replay(replay.Options{})
		if !s.From.Equal(cases[0].Stored) || !s.To.Equal(cases[2].Stored) || s.To.Sub(s.From) < 2*time.Minute || s.Judged() != 3 {
			w.Errorf("from %v to %v %d turns were judged", s.From, s.To, s.Judged())
		}
	})
}

// A story has the view, and the recorded decision if the present code decides otherwise.
func TestATurnIsTold(t *testing.T) {
	tell(t, func(w *world) {
		w.is("a")
		for _, code := range []string{"", "v7"} {
			turn := w.decide(1, "")
			turn.Code = code
			w.store(turn)
		}
		_, cases := w.replay(replay.Options{Views: true})
		for i, code := range []string{"a version without a name", "v7"} {
			told, err := cases[i].Story()
			if text := string(told.Format()); err != nil || cases[i].Code() != code || !strings.Contains(text, "by "+code) || strings.Contains(text, "otherwise") {
				w.Errorf("%v\n%s", err, text)
			}
		}
		other := counts("")
		other.Decide = func(view, time.Time) reconcile.Decision { return reconcile.Nothing("I know better") }
		_, cases = w.replay(replay.Options{Views: true, Make: func(string, json.RawMessage) (reconcile.Any, error) { return other, nil }})
		told, err := cases[0].Story()
		if text := string(told.Format()); err != nil || !strings.Contains(text, "decides otherwise") || strings.Contains(text, "I know better") {
			w.Errorf("%v\n%s", err, text)
		}
		if _, err := (replay.Case{Verdict: replay.Unjudged, Why: replay.Expired}).Story(); err == nil {
			w.Error("a turn that could not be judged is told")
		}
		if _, err := (replay.Case{Verdict: replay.Same}).Story(); err == nil {
			w.Error("a turn that sees nothing is told")
		}
	})
}

// The detail of an unjudged turn names what is missing: a kind, or the end of its log.
func TestWhatIsMissingIsTold(t *testing.T) {
	for kind, want := range map[kinds.Name]string{
		"pods": "not all is on record that was there of pods", "configmaps": "up to message 1000, and the last one that is kept is 1", "": "had not yet seen all of it",
	} {
		tell(t, func(w *world) {
			w.is("a")
			turn := w.decide(1, "")
			if turn.Digest++; kind != "" {
				turn.Seen[kind] = 1000
			}
			w.store(turn)
			if _, cases := w.replay(replay.Options{}); !strings.Contains(cases[0].Detail, want) {
				w.Errorf("of %q the detail is %q, want %q", kind, cases[0].Detail, want)
			}
		})
	}
}

// The replay looks up an outcome that it no longer remembers, for a turn that was stored late.
func TestOutcomesOfLongAgo(t *testing.T) {
	tell(t, func(w *world) {
		w.is("a")
		w.failed(w.decided(1), "quota")
		turn := w.decide(1, "") // knows of the first, and is stored late
		for i := range 9 {
			w.failed(w.decided(1), strings.Repeat("x", i))
		}
		w.store(turn)
		if s, cases := w.replay(replay.Options{}); s.Same != s.Turns || s.Turns != 11 {
			w.Errorf("%+v\n%+v", s, cases)
		}
	})
}
