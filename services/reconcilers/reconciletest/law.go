package reconciletest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Law is a property of a controller that holds for every view. Holds returns the
// breach; it draws other inputs, such as later moments, from t.
type Law[V any] struct {
	Name  string
	Holds func(t *rapid.T, c reconcile.Controller[V], view V, now time.Time) error
}

// Laws checks the universal laws and the caller's (see [Indifferent] and
// [Content]) on views from a generator. Each law is a subtest. Times in views
// must be whole seconds, as in the API.
func Laws[V any](t *testing.T, c reconcile.Controller[V], views *rapid.Generator[V], now time.Time, more ...Law[V]) {
	t.Helper()
	for _, law := range append(Universal[V](), more...) {
		t.Run(law.Name, rapid.MakeCheck(func(t *rapid.T) {
			view := views.Draw(t, "view")
			if err := law.Holds(t, c, view, now); err != nil {
				t.Fatalf("%s is not %s: %v", c.Name, law.Name, err)
			}
		}))
	}
}

// Universal returns the laws that need no knowledge of the view type.
func Universal[V any]() []Law[V] {
	return []Law[V]{
		{Name: "deterministic", Holds: deterministic[V]},
		{Name: "hands off", Holds: handsOff[V]},
		{Name: "faithful", Holds: faithful[V]},
		{Name: "patient", Holds: patient[V]},
		{Name: "punctual", Holds: punctual[V]},
		{Name: "robust", Holds: robust[V]},
		{Name: "blind", Holds: blind[V]},
	}
}

// Indifferent is the law that the order of lists in a view does not matter.
// permute returns a view with its lists in another order, and must not change
// its argument.
func Indifferent[V any](permute func(t *rapid.T, view V) V) Law[V] {
	return Law[V]{Name: "indifferent to order", Holds: func(t *rapid.T, c reconcile.Controller[V], view V, now time.Time) error {
		return same(c.Decide(view, now), c.Decide(permute(t, view), now))
	}}
}

// Content is the law that a controller has no more commands after some turns if
// its commands are carried out. apply returns the view after a decision was
// carried out. The law finds endless loops.
func Content[V any](turns int, apply func(view V, d reconcile.Decision, now time.Time) V) Law[V] {
	return Law[V]{Name: "content", Holds: func(_ *rapid.T, c reconcile.Controller[V], view V, now time.Time) error {
		var d reconcile.Decision
		for range turns {
			if d = c.Decide(view, now); len(d.Commands) == 0 {
				return nil
			}
			view = apply(view, d, now)
		}
		return fmt.Errorf("after %d turns it still wants something: %s", turns, d.Because)
	}}
}

// deterministic: the same view and moment give the same decision, also after the
// view was encoded and decoded, as in replay.
func deterministic[V any](_ *rapid.T, c reconcile.Controller[V], view V, now time.Time) error {
	first := c.Decide(view, now)
	for range 4 {
		if err := same(first, c.Decide(view, now)); err != nil {
			return fmt.Errorf("asked again: %w", err)
		}
	}
	text, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("write the view down: %w", err)
	}
	replayed, err := c.Judge(text, now)
	if err != nil {
		return err
	}
	if err := same(first, replayed); err != nil {
		return fmt.Errorf("asked on the view as it was written down: %w", err)
	}
	return nil
}

// handsOff: deciding does not change the view, whose objects are shared.
func handsOff[V any](_ *rapid.T, c reconcile.Controller[V], view V, now time.Time) error {
	before, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("write the view down: %w", err)
	}
	c.Decide(view, now)
	after, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("write the view down: %w", err)
	}
	if !bytes.Equal(before, after) {
		return fmt.Errorf("it changed its view from\n%s\nto\n%s", before, after)
	}
	return nil
}

// faithful: the decision has a reason, its commands are within the promise and
// name the object that they were decided on, and its figures belong to its
// metrics.
func faithful[V any](_ *rapid.T, c reconcile.Controller[V], view V, now time.Time) error {
	d := c.Decide(view, now)
	if d.Because == "" {
		return fmt.Errorf("it gives no reason")
	}
	for _, command := range d.Commands {
		if err := keeps(c.Writes, command); err != nil {
			return fmt.Errorf("%s %s: %w", command.Verb, command.Ref(), err)
		}
	}
	text, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("write the view down: %w", err)
	}
	if err := Promised(c.Describe(), text, d); err != nil {
		return err
	}
	for _, f := range d.Figures {
		if err := fits(c.Metrics, d.Commands, f); err != nil {
			return fmt.Errorf("it gives a figure of %q, %w", f.Metric, err)
		}
	}
	return nil
}

// fits: a figure belongs to a declared metric, has its labels, and names no object
// but that of a command.
func fits(metrics []reconcile.Metric, commands []events.Command, f reconcile.Figure) error {
	at := slices.IndexFunc(metrics, func(m reconcile.Metric) bool { return m.Name == f.Metric })
	switch {
	case at < 0:
		return errors.New("which is none of its metrics")
	case len(f.Labels) != len(metrics[at].Labels):
		return fmt.Errorf("with %d labels instead of %d", len(f.Labels), len(metrics[at].Labels))
	case metrics[at].Sort == reconcile.Counter && f.Value < 0:
		return errors.New("which makes a counter less")
	case f.Took && (f.Of == (events.Ref{}) || metrics[at].Sort != reconcile.Histogram):
		return errors.New("which says how long nothing took, or adds times up")
	case f.Of != (events.Ref{}) && !slices.ContainsFunc(commands, func(c events.Command) bool { return c.Ref() == f.Of }):
		return fmt.Errorf("of %v, which no command is about", f.Of)
	}
	return nil
}

func keeps(promise reconcile.Writes, c events.Command) error {
	switch {
	case !promise.Allows(c):
		return fmt.Errorf("it did not promise to do only this")
	case c.Verb == events.VerbRecord && c.OnApplied == nil && len(c.Note) == 0:
		return fmt.Errorf("there is nothing to record")
	case c.Verb == events.VerbRecord:
		return nil
	case c.Verb == events.VerbAsk && c.Of != nil:
		return nil
	case c.Name == "" || c.Kind == "" || c.Version == "":
		return fmt.Errorf("name, kind or version is missing")
	case c.Verb == events.VerbAsk && c.Subresource == "" && c.If == nil:
		return nil // it asks for any object of that name
	case c.Verb != events.VerbCreate && (c.If == nil || c.If.UID == ""):
		return fmt.Errorf("it does not depend on the object's uid")
	case c.Verb == events.VerbUpdate && c.If.ResourceVersion == "":
		return fmt.Errorf("it does not depend on the object's version")
	case c.Verb == events.VerbPatch && c.PatchType == "":
		return fmt.Errorf("the patch has no type")
	case c.Verb != events.VerbDelete && c.Verb != events.VerbAsk && !json.Valid(c.Body):
		return fmt.Errorf("the body is no JSON: %q", c.Body)
	}
	return nil
}

// patient: a controller that wants nothing until a moment, or ever, wants
// nothing before it.
func patient[V any](t *rapid.T, c reconcile.Controller[V], view V, now time.Time) error {
	d := c.Decide(view, now)
	if len(d.Commands) > 0 || d.Retry {
		return nil
	}
	end := d.WakeAt
	if end.IsZero() {
		end = now.AddDate(10, 0, 0)
	}
	if !end.After(now) {
		return nil // the law "punctual" reports this
	}
	wait := end.Sub(now)
	moments := []time.Duration{ // the generator prefers the start, so other moments are added
		time.Duration(rapid.Int64Range(0, int64(wait)-1).Draw(t, "while it waits")),
		wait / 4, wait / 2, 3 * (wait / 4), wait - 1,
	}
	for _, passed := range moments {
		at := now.Add(passed)
		early := c.Decide(view, at)
		if len(early.Commands) > 0 || early.Retry || !early.WakeAt.Equal(d.WakeAt) {
			return fmt.Errorf("at %v it wanted nothing until %v, but at %v it wants %d commands and to be woken at %v",
				now, d.WakeAt, at, len(early.Commands), early.WakeAt)
		}
	}
	return nil
}

// punctual: a controller that asks for a wake has a reason; at that time it does
// not ask for a wake at the same moment again.
func punctual[V any](_ *rapid.T, c reconcile.Controller[V], view V, now time.Time) error {
	d := c.Decide(view, now)
	switch {
	case d.WakeAt.IsZero():
		return nil
	case !d.WakeAt.After(now):
		return fmt.Errorf("at %v it wants to be woken at %v", now, d.WakeAt)
	case len(d.Commands) > 0:
		return nil // the view will have changed by then
	}
	awake := c.Decide(view, d.WakeAt)
	if len(awake.Commands) == 0 && !awake.Retry && !awake.WakeAt.After(d.WakeAt) {
		return fmt.Errorf("woken at %v it has nothing to do: %s", d.WakeAt, awake.Because)
	}
	return nil
}

// robust: missing fields do not make it panic.
func robust[V any](t *rapid.T, c reconcile.Controller[V], view V, now time.Time) (err error) {
	text, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("write the view down: %w", err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("read the view: %w", err)
	}
	if top, ok := value.(map[string]any); ok { // the fields that Observe always sets stay
		for _, name := range sorted(top) {
			top[name] = thin(t, top[name])
		}
	}
	if text, err = json.Marshal(value); err != nil {
		return fmt.Errorf("write the thinned view down: %w", err)
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("it panics: %v, on %s", cause, text)
		}
	}()
	_, err = c.Judge(text, now)
	return err
}

// thin removes about one field in eight.
func thin(t *rapid.T, value any) any {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range sorted(value) {
			if rapid.IntRange(0, 7).Draw(t, "keep "+name) == 7 {
				delete(value, name)
				continue
			}
			value[name] = thin(t, value[name])
		}
	case []any:
		for i := range value {
			value[i] = thin(t, value[i])
		}
	}
	return value
}

func sorted(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// same returns nil if two decisions are equal byte for byte, and their difference otherwise.
func same(a, b reconcile.Decision) error {
	x, err := transcript(a)
	if err != nil {
		return err
	}
	y, err := transcript(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(x, y) {
		return fmt.Errorf("it decides otherwise (-first +then):\n%s", difference(string(x), string(y)))
	}
	return nil
}

// transcript encodes a whole decision. It uses a turn, because a turn's encoding
// includes notices.
func transcript(d reconcile.Decision) ([]byte, error) {
	turn := events.Turn{Because: d.Because, Commands: slices.Clone(d.Commands)}
	if !d.WakeAt.IsZero() {
		at := d.WakeAt.UTC()
		turn.WakeAt = &at
	}
	if d.Retry {
		turn.Attempt = 1
	}
	turn.Pack()
	return yaml.Marshal(turn)
}
