package validatingadmissionpolicystatus

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var warning = admissionregistrationv1.ExpressionWarning{FieldRef: "spec.validations[0].expression", Warning: "apps/v1, Kind=Deployment: undefined field 'x'"}

func policy() *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: "7", Generation: 2}}
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Policy: policy()}
		v.Policy.Status.ObservedGeneration = int64(rapid.IntRange(0, 3).Draw(t, "observed"))
		v.Policy.Status.Conditions = rapid.SampledFrom([][]metav1.Condition{nil, {{Type: "Other", Status: "True"}}}).Draw(t, "conditions")
		if rapid.Bool().Draw(t, "warned before") {
			v.Policy.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: []admissionregistrationv1.ExpressionWarning{warning}}
		}
		if rapid.Bool().Draw(t, "asked") {
			v.Types = &query.Types{Warnings: rapid.SampledFrom([][]admissionregistrationv1.ExpressionWarning{nil, {warning}}).Draw(t, "warnings")}
		}
		if rapid.IntRange(0, 7).Draw(t, "deleted") == 0 {
			v.Policy.DeletionTimestamp = &metav1.Time{Time: reconciletest.Now}
		}
		return v
	}), reconciletest.Now, reconciletest.Content(3, applied), reconciletest.Law[View]{Name: "truthful", Holds: truthful})
}

// applied returns the view after a decision was carried out.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	if d.Commands[0].Verb == events.VerbAsk {
		return View{Policy: v.Policy, Types: &query.Types{}}
	}
	return View{Policy: written(d.Commands[0])}
}

func written(c events.Command) *admissionregistrationv1.ValidatingAdmissionPolicy {
	next := new(admissionregistrationv1.ValidatingAdmissionPolicy)
	if err := json.Unmarshal(c.Body, next); err != nil {
		panic(err)
	}
	return next
}

// truthful: the status has the answer's warnings and this generation, and keeps the
// conditions of other programs.
func truthful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb == events.VerbAsk {
			continue
		}
		said := written(command).Status
		switch {
		case v.Types == nil || said.TypeChecking == nil || len(said.TypeChecking.ExpressionWarnings) != len(v.Types.Warnings):
			return errors.New("it says what has not been found out")
		case said.ObservedGeneration != v.Policy.Generation || len(said.Conditions) != len(v.Policy.Status.Conditions):
			return errors.New("it says it of another generation, or takes away what others say")
		}
	}
	return nil
}

func TestObserve(t *testing.T) {
	key, world := events.Key{Name: "p"}, reconciletest.NewWorld().Put(kinds.ValidatingAdmissionPolicies.Kind, policy())
	if v, ok := observe(world, key); !ok || v.Policy.Name != "p" || v.Types != nil {
		t.Errorf("before anybody was asked it sees %+v", v)
	}
	if _, ok := observe(world, events.Key{Name: "q"}); ok {
		t.Error("observe finds a policy that is not there")
	}
	answer := func(uid types.UID, version string, status events.Status, body string) events.Outcome {
		return events.Outcome{
			Key: key, Lane: events.LaneWrite, UID: uid, ResourceVersion: version, At: reconciletest.Now,
			Results: []events.Result{{Status: status, Answer: &events.Answer{Body: json.RawMessage(body)}}},
		}
	}
	for what, c := range map[string]struct {
		last          events.Outcome
		heard, unread bool
	}{
		"to it":                    {answer("u", "7", events.Answered, `{}`), true, false},
		"to a policy of its name":  {answer("before", "7", events.Answered, `{}`), false, false},
		"before something changed": {answer("u", "6", events.Answered, `{}`), false, false},
		"that it may not have":     {answer("u", "7", events.Refused, `{}`), false, false},
		"that cannot be read":      {answer("u", "7", events.Answered, `no`), false, true},
		"of another shape":         {answer("u", "7", events.Answered, `{"pods":[]}`), false, true},
	} {
		if v, _ := observe(world.Remember(c.last), key); (v.Types != nil) != c.heard || (v.Unread != nil) != c.unread {
			t.Errorf("an answer %s is heard: %v, cannot be read: %+v", what, v.Types != nil, v.Unread)
		}
	}
}
