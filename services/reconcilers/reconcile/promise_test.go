package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// notice is an Event about the pod ns/p, with a change.
func notice(change ...func(*events.Notice)) *events.Notice {
	n := &events.Notice{
		About: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "p", UID: "u"},
		Type:  "Normal", Reason: "Killing", Message: "m",
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func TestEventsAreToldAsPromised(t *testing.T) {
	about := func(name string) func(*events.Notice) { return func(n *events.Notice) { n.About.Name = name } }
	because := func(reason string) func(*events.Notice) { return func(n *events.Notice) { n.Reason = reason } }
	kind := func(version, kind string) func(*events.Notice) {
		return func(n *events.Notice) { n.About.APIVersion, n.About.Kind = version, kind }
	}
	replaced := func(n *events.Notice) { n.About.UID = "v" }
	itself, pods, any := EventPromise{Kind: kinds.Pods.Kind, On: Itself}, EventPromise{Kind: kinds.Pods.Kind}, EventPromise{Any: true, On: Itself}
	jobs := EventPromise{Kind: kinds.Jobs.Kind}
	kills := EventPromise{Kind: kinds.Pods.Kind, Reasons: []string{"Killing", "Killed"}}
	for what, c := range map[string]struct {
		events EventPromises
		notice *events.Notice
		turn   func(*events.Turn)
		want   string
	}{
		"nothing is promised":          {nil, notice(), nil, "never promised an Event about a \"Pod\""},
		"the key's object":             {EventPromises{itself}, notice(), nil, ""},
		"another object":               {EventPromises{itself}, notice(about("q")), nil, "which is not the object of the key"},
		"an older one of its name":     {EventPromises{itself}, notice(replaced), nil, "which is not the object of the key"},
		"a turn that saw none":         {EventPromises{itself}, notice(replaced), func(turn *events.Turn) { turn.UID = "" }, ""},
		"any object of the kind":       {EventPromises{pods}, notice(about("q"), replaced), nil, ""},
		"another kind":                 {EventPromises{pods}, notice(kind("v1", "Node")), nil, "never promised an Event about a \"Node\""},
		"the kind of another group":    {EventPromises{pods}, notice(kind("v2", "Pod")), nil, "never promised"},
		"the second promise":           {EventPromises{jobs, itself, pods}, notice(about("q")), nil, ""},
		"the promises of another kind": {EventPromises{jobs}, notice(), nil, "never promised"},
		"any kind, of the key":         {EventPromises{any}, notice(), nil, ""},
		"any kind, another object":     {EventPromises{any}, notice(about("q")), nil, "which is not the object of the key"},
		"another kind than the key's":  {EventPromises{any}, notice(kind("v1", "Node")), nil, "and the turn about one of pods"},
		"a kind that is not known": {EventPromises{any}, notice(kind("e/v1", "Widget")), func(turn *events.Turn) {
			turn.Key.Kind = "widgets.e"
		}, ""},
		"a reason":            {EventPromises{kills}, notice(because("Killed")), nil, ""},
		"another reason":      {EventPromises{kills}, notice(because("Failed")), nil, `the reason "Failed"`},
		"any good reason":     {EventPromises{pods}, notice(because("AZaz09")), nil, ""},
		"one letter":          {EventPromises{pods}, notice(because("A")), nil, ""},
		"no reason":           {EventPromises{pods}, notice(because("")), nil, "the reason"},
		"a small letter":      {EventPromises{pods}, notice(because("killing")), nil, "the reason"},
		"a digit first":       {EventPromises{pods}, notice(because("1Killing")), nil, "the reason"},
		"a space":             {EventPromises{pods}, notice(because("Kill it")), nil, "the reason"},
		"what is before A":    {EventPromises{pods}, notice(because("K@")), nil, "the reason"},
		"what is after Z":     {EventPromises{pods}, notice(because("K[")), nil, "the reason"},
		"what is before a":    {EventPromises{pods}, notice(because("K`")), nil, "the reason"},
		"what is after z":     {EventPromises{pods}, notice(because("K{")), nil, "the reason"},
		"what is before 0":    {EventPromises{pods}, notice(because("K/")), nil, "the reason"},
		"what is after 9":     {EventPromises{pods}, notice(because("K:")), nil, "the reason"},
		"of another alphabet": {EventPromises{pods}, notice(because("Ké")), nil, "the reason"},
	} {
		d := Controller[struct{}]{Name: "c", Owns: &kinds.Pods.Kind, Events: c.events, Writes: Writes{{Verb: events.VerbCreate, Kind: "pods"}}}.Describe()
		for where, offer := range map[string]func(*events.Turn, *events.Command){
			"when it is applied": func(_ *events.Turn, c2 *events.Command) { c2.OnApplied = c.notice },
			"when it failed":     func(_ *events.Turn, c2 *events.Command) { c2.OnFailed = c.notice },
			"when it is applied, packed": func(turn *events.Turn, c2 *events.Command) {
				turn.Notices, c2.Applied = []events.Notice{*notice(because("no reason")), *c.notice}, 2
			},
			"when it failed, packed": func(turn *events.Turn, c2 *events.Command) { turn.Notices, c2.Failed = []events.Notice{*c.notice}, 1 },
		} {
			turn := events.Turn{Controller: "c", Key: events.Key{Namespace: "ns", Name: "p"}, UID: "u"}
			if c.turn != nil {
				c.turn(&turn)
			}
			create, record := events.Command{Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "ns", Name: "x"}, events.Command{Verb: events.VerbRecord}
			offer(&turn, &create)
			offer(&turn, &record)
			fits := d.Fits(turn, nil, nil)
			said(t, what+", "+where, fits(create), c.want)
			said(t, what+", recorded "+where, fits(record), c.want)
		}
	}
}
