package tokencleaner

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	now = reconciletest.Now
	key = events.Key{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"}
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now, reconciletest.Content(3, carriedOut), reconciletest.Law[View]{Name: "sure", Holds: sure})
}

func anyView(t *rapid.T) View {
	v := View{Secret: secret("7")}
	if rapid.IntRange(0, 3).Draw(t, "told") > 0 {
		v.Expiry = &query.Expiry{Other: rapid.IntRange(0, 3).Draw(t, "other") == 3, Unreadable: rapid.IntRange(0, 3).Draw(t, "unreadable") == 3}
		if rapid.IntRange(0, 3).Draw(t, "expires") > 0 {
			v.Expiry.At = new(now.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "in seconds")) * time.Second))
		}
	} else if rapid.Bool().Draw(t, "unread") {
		ago := time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds ago")) * time.Second
		v.Unread = &reconcile.Unread{Because: "the answer cannot be read", At: now.Add(-ago)}
	}
	if rapid.IntRange(0, 7).Draw(t, "deleted") == 7 {
		reconciletest.Deleted[*metav1.PartialObjectMetadata](now)(v.Secret)
	}
	return v
}

func secret(version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u", ResourceVersion: version}}
}

// carriedOut answers that the token has expired, or deletes it.
func carriedOut(v View, d reconcile.Decision, at time.Time) View {
	for _, c := range d.Commands {
		switch {
		case c.AsksExpiry():
			v.Expiry, v.Unread = &query.Expiry{Unreadable: true}, nil
		case c.Verb == events.VerbDelete:
			v.Secret = v.Secret.DeepCopy()
			reconciletest.Deleted[*metav1.PartialObjectMetadata](at)(v.Secret)
		}
	}
	return v
}

// sure: a token is deleted only if the writer has answered that it has expired, and only in the
// version of the answer. A token that will expire has its turn at that moment.
func sure(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d, expired := c.Decide(v, now), v.Expiry != nil && v.Expiry.Passed(now)
	gone := slices.IndexFunc(d.Commands, func(c events.Command) bool { return c.Verb == events.VerbDelete })
	switch {
	case v.Secret.DeletionTimestamp != nil:
		return nil
	case (gone >= 0) != expired:
		return fmt.Errorf("expired: %v, deleted: %v", expired, gone >= 0)
	case expired && (d.Commands[gone].If == nil || d.Commands[gone].If.UID != v.Secret.UID || d.Commands[gone].If.ResourceVersion != v.Secret.ResourceVersion):
		return errors.New("it would be deleted in any version")
	case !expired && v.Expiry != nil && v.Expiry.At != nil && !v.Expiry.Other && !d.WakeAt.Equal(*v.Expiry.At):
		return fmt.Errorf("it expires at %v, and has its turn at %v", v.Expiry.At, d.WakeAt)
	default:
		return nil
	}
}

// An answer counts for the version that it is about. An answer that a Secret has another type
// counts as long as the Secret exists.
func TestWhatAnAnswerIsAbout(t *testing.T) {
	expired, other := query.Expiry{Unreadable: true}, query.Expiry{Other: true}
	for what, c := range map[string]struct {
		answer any
		status events.Status
		uid    types.UID
		at     string
		want   *query.Expiry
		unread bool
	}{
		"of this version":                 {expired, events.Answered, "u", "7", &expired, false},
		"of a version before":             {expired, events.Answered, "u", "6", nil, false},
		"of a version that means nothing": {expired, events.Answered, "u", "", nil, false},
		"of another Secret":               {expired, events.Answered, "before", "7", nil, false},
		"another type":                    {other, events.Answered, "u", "7", &other, false},
		"another type, before":            {other, events.Answered, "u", "6", &other, false},
		"another Secret's type":           {other, events.Answered, "before", "6", nil, false},
		"no answer":                       {nil, events.Conflict, "u", "7", nil, false},
		"of a delete":                     {nil, events.Applied, "u", "7", nil, false},
		"of a newer writer":               {map[string]any{"until": "x"}, events.Answered, "u", "7", nil, true},
		"of a newer writer, before":       {map[string]any{"until": "x"}, events.Answered, "u", "6", nil, false},
	} {
		world := reconciletest.NewWorld().Put(kinds.Secrets.Kind, secret("7"))
		r := events.Result{Status: c.status}
		if c.answer != nil {
			text, err := json.Marshal(c.answer)
			if err != nil {
				t.Fatal(err)
			}
			r.Answer = &events.Answer{Body: text}
		}
		world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: c.uid, ResourceVersion: c.at, At: now, Results: []events.Result{r}})
		v, ok := observe(world, key)
		if !ok || !reflect.DeepEqual(v.Expiry, c.want) || (v.Unread != nil) != c.unread {
			t.Errorf("%s: the view has the expiry %+v, unread: %v", what, v.Expiry, v.Unread)
		}
	}
}

// Only Secrets of kube-system have turns, as long as they exist.
func TestWhoseTurn(t *testing.T) {
	world, own, elsewhere := reconciletest.NewWorld(), secret("7"), secret("7")
	elsewhere.Namespace = "shop"
	world.Put(kinds.Secrets.Kind, elsewhere)
	for what, c := range map[string]struct {
		was, now metav1.Object
		want     []events.Key
	}{
		"one comes":    {nil, own, []events.Key{key}},
		"one changes":  {own, secret("8"), []events.Key{key}},
		"one goes":     {own, nil, nil},
		"one of users": {nil, elsewhere, nil},
	} {
		if got := world.Keys(Controller, kinds.Secrets.Kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: the change asks for turns of %v", what, got)
		}
	}
	if _, ok := observe(world, key); ok {
		t.Error("observe finds a Secret that is not there")
	}
	if _, ok := observe(world, events.Key{Namespace: "shop", Name: key.Name}); ok {
		t.Error("observe finds a Secret of another namespace")
	}
}
