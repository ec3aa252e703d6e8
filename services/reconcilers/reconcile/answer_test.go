package reconcile_test

import (
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func told(body string) events.Result {
	return events.Result{Status: events.Answered, Answer: &events.Answer{Body: []byte(body)}}
}

// A malformed answer must not be taken for one that names no pod.
func TestAnAnswerOfAnotherShapeIsNone(t *testing.T) {
	for body, want := range map[string]string{
		`{}`: "",
		`{"count":1,"pods":[{"name":"a","uid":"u"}]}`: "",
		` {"count":2}`:                           "",
		``:                                       "it is no object",
		`null`:                                   "it is no object",
		`[]`:                                     "it is no object",
		`"a text"`:                               "it is no object",
		`{"kinds":[{"kind":"pods"}]}`:            `unknown field "kinds"`,
		`{"pods":[{"name":"a","claims":["c"]}]}`: `unknown field "claims"`,
		`{"count":"one"}`:                        "cannot unmarshal",
		`{"count":`:                              "unexpected EOF",
	} {
		err := reconcile.Read(told(body), new(query.Users))
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q is read with %v, want %q", body, err, want)
		}
	}
	for _, r := range []events.Result{{Status: events.Answered}, {Status: events.Failed, Answer: &events.Answer{Body: []byte(`{}`)}}} {
		if reconcile.Read(r, new(query.Users)) == nil {
			t.Errorf("%+v is taken for an answer", r)
		}
	}
}

func TestAnObjectIsToldByItsKindAndUID(t *testing.T) {
	for body, good := range map[string]bool{
		`{"kind":"Scale","metadata":{"uid":"u"},"spec":{"replicas":3},"news":1}`: true,
		`{"metadata":{"uid":"u"},"spec":{"replicas":3}}`:                         true, // an item of a list has no kind
		`{"kind":"Status","metadata":{"uid":"u"}}`:                               false,
		`{"kind":"Scale","spec":{"replicas":3}}`:                                 false,
		`{"kind":"Scale","metadata":{"uid":"u"},"spec":{"replicas":"3"}}`:        false,
		`{}`:   false,
		`null`: false,
		`[]`:   false,
	} {
		if err := reconcile.ReadObject(told(body), "Scale", new(autoscalingv1.Scale)); (err == nil) != good {
			t.Errorf("%s is read with %v", body, err)
		}
	}
}

// A controller that cannot read an answer says so and asks again later.
func TestUnreadAnswersAreAskedForAgain(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	question := reconcile.AskFor(kinds.Leases.Kind, "kube-system", "a")
	var none *reconcile.Unread
	if d := none.Ask(now, "nothing is known", question); len(d.Commands) != 1 || d.Because != "nothing is known" {
		t.Errorf("the first time it is %+v", d)
	}
	unread := &reconcile.Unread{Because: "the answer cannot be read: it is no object", At: now}
	d := unread.Ask(now, "nothing is known", question)
	if len(d.Commands) > 0 || !d.WakeAt.After(now) || d.Because != unread.Because {
		t.Errorf("at once it is %+v", d)
	}
	if d := unread.Ask(d.WakeAt, "nothing is known", question); len(d.Commands) != 1 || !strings.Contains(d.Because, unread.Because) {
		t.Errorf("later it is %+v", d)
	}
}
