package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/settle"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// Rest is one controller, upstream's and ours, that runs undisturbed on an API server which refuses some
// writes, until it is at rest.
type Rest struct {
	Theirs kcm.Build
	Ours   reconcile.Any
	Kinds  []kinds.Kind
	// Long is how long both run; 0: [resting].
	Long time.Duration
	// Shown, when set, makes the form of an object that our controller sees.
	Shown func(kinds.Kind, metav1.Object) metav1.Object
	// Spared, when set, makes upstream's refusal from ours.
	Spared func(Refusal) Refusal
	// Door, when set, carries out our requests; nil: the stage does.
	Door func(s *Stage, now time.Time, r plan.Request) plan.Response
	// Allows reports whether a user may do something; nil: no user may do anything.
	Allows func(asked authorizationv1.SubjectAccessReviewSpec, now time.Time) bool
	// Chance reports, from upstream's writes, whether its end is chance; nil: it never is.
	Chance func(writes []string) bool
	// Picture selects the compared lines of the objects and Events; nil: all.
	Picture func(world []runtime.Object, told []string) []string
	// Lines removes intended differences from the lines of both ends, and Fair from the effects made of them;
	// nil: nothing.
	Lines func(refusal Refusal, theirs, ours []string) ([]string, []string)
	Fair  func(world []runtime.Object, refusal Refusal, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect)
}

// resting is how long both run: all refused writes have been retried by then.
const resting = 90 * time.Second

// Compare runs both, and shows the differences of their ends; "" if there are none.
func (c Rest) Compare(t *testing.T, world []runtime.Object, refusal Refusal) (diff string, err error) {
	var theirs, writes []string
	upstreams := refusal
	if c.Spared != nil {
		upstreams = c.Spared(refusal)
	}
	failed := kcm.WithGates(nil, func() { synctest.Test(t, func(*testing.T) { theirs, writes, err = c.theirs(world, upstreams) }) })
	err = errors.Join(failed, err)
	if err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	if c.Chance != nil && c.Chance(writes) {
		return "", nil
	}
	ours, err := c.OurEnd(world, refusal)
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	theirs, ours = refusal.comparable(theirs), refusal.comparable(ours)
	if c.Lines != nil {
		theirs, ours = c.Lines(refusal, theirs, ours)
	}
	a, b := effectsIn(theirs), effectsIn(ours)
	if c.Fair != nil {
		a, b = c.Fair(world, refusal, a, b)
	}
	return effect.Diff(a, b), nil
}

// effectsIn converts lines to effects, so that [effect.Diff] can show them field by field.
func effectsIn(lines []string) (effects []effect.Effect) {
	for _, line := range lines {
		resource, body, _ := strings.Cut(line, " ")
		e := effect.Effect{Verb: effect.Event, Resource: resource, Body: body}
		if meta, ok := effect.Tree(body).(map[string]any); ok {
			m, _ := meta["metadata"].(map[string]any)
			e.Verb, e.Name = effect.Update, fmt.Sprint(m["name"])
		}
		effects = append(effects, e)
	}
	return effects
}

func (c Rest) stage(now func() time.Time, world []runtime.Object, refusal Refusal) (*Stage, error) {
	s := NewStage(now, c.Kinds...)
	for _, obj := range world {
		gvks, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(c.Kinds, func(k kinds.Kind) bool { return k.Kind == gvks[0].Kind && k.Name.Group() == gvks[0].Group })
		if at < 0 {
			return nil, fmt.Errorf("the world holds a %v", gvks[0])
		}
		s.API.Load(c.Kinds[at].Name, obj.DeepCopyObject().(objects.Object))
	}
	s.Refuse, s.API.Allows = refusal.Refuses(), c.Allows
	return s, nil
}

// OurEnd is what is compared of a world when our controller is at rest.
func (c Rest) OurEnd(world []runtime.Object, refusal Refusal) (lines []string, err error) {
	a, err := c.rested(world, refusal)
	if err != nil {
		return nil, err
	}
	return c.rest(a.Stage), nil
}

// rested is our controller when it is at rest.
func (c Rest) rested(world []runtime.Object, refusal Refusal) (a *Actor, err error) {
	a = &Actor{Controller: c.Ours, Now: objects.Now, Shown: c.Shown}
	if a.Stage, err = c.stage(func() time.Time { return a.Now }, world, refusal); err != nil {
		return nil, err
	}
	if c.Door != nil {
		a.Door = func(r plan.Request) plan.Response { return c.Door(a.Stage, a.Now, r) }
	}
	a.Begin(c.Kinds...)
	if err := a.Until(objects.Now.Add(cmp.Or(c.Long, resting))); err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, strings.Join(a.Stage.Writes[max(0, len(a.Stage.Writes)-20):], "\n"))
	}
	return a, nil
}

func (c Rest) theirs(world []runtime.Object, refusal Refusal) (lines, writes []string, err error) {
	time.Sleep(time.Until(objects.Now))
	s, err := c.stage(time.Now, world, refusal)
	if err != nil {
		return nil, nil, err
	}
	build := func(ctx context.Context, f informers.SharedInformerFactory, client kubernetes.Interface) (func(), error) {
		s.Informers = f
		return c.Theirs(ctx, f, client)
	}
	err = s.RunUpstream(build, func() {
		time.Sleep(cmp.Or(c.Long, resting))
		synctest.Wait()
		s.Do(func(*apiserver.API) { lines, writes = c.rest(s), s.Writes })
	})
	return lines, writes, err
}

// counted matches the uid of an object that was created meanwhile.
var counted = regexp.MustCompile(`"uid-\d+"`)

// suffix matches the end of the name of a pod that was created and deleted meanwhile.
var suffix = regexp.MustCompile(`(Deleted pod: \S+-)[a-z0-9]{5}$`)

// rest are the objects and Events when a controller is at rest.
func (c Rest) rest(s *Stage) (out []string) {
	settled := settle.Settled{Told: s.Told}
	for _, obj := range s.Objects() {
		settled.World = append(settled.World, obj.(objects.Object).DeepCopyObject())
	}
	if c.Picture != nil {
		return c.Picture(settled.World, settled.Told)
	}
	for _, line := range settle.Lines(settled) {
		out = append(out, suffix.ReplaceAllString(counted.ReplaceAllString(line, `"uid"`), "$1*"))
	}
	return out
}

// Writes is how often our controller writes without refusals.
func (c Rest) Writes(world []runtime.Object) int {
	a, err := c.rested(objects.Copied(world), Refusal{})
	if err != nil {
		return 0
	}
	return len(a.Stage.Writes)
}
