package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

func scaling(replicas string) events.Turn {
	return events.Turn{
		Controller: "deployment-controller", Key: events.Key{Namespace: "shop", Name: "web"}, Because: "too few", Commands: []events.Command{
			{Verb: events.VerbUpdate, Kind: "replicasets.apps", Namespace: "shop", Name: "web-1", Body: json.RawMessage(`{"spec":{"replicas":` + replicas + `}}`)},
			{Verb: events.VerbRecord}, {Verb: events.VerbRecord},
		},
	}
}

// A difference names the field of the command that came out otherwise.
func TestDifferencesAreShownByCommand(t *testing.T) {
	now := scaling("3")
	c := replay.Case{Controller: "deployment-controller", Sequence: 7, Turn: scaling("4"), Now: &now, Verdict: replay.Differs}
	unsure := replay.Case{Controller: "replicaset-controller", Sequence: 9, Verdict: replay.Unjudged, Why: replay.Expired, Detail: "of pods"}
	other := scaling("4")
	other.Commands[0], other.Commands[1] = other.Commands[1], other.Commands[0]
	moved := replay.Case{Controller: "deployment-controller", Sequence: 8, Turn: scaling("4"), Now: &other, Verdict: replay.Differs}
	broken := replay.Case{Controller: "deployment-controller", Sequence: 10, Turn: scaling("4"), Broken: "panic: no", Verdict: replay.Differs}
	answer := replayed{Unsure: []replay.Case{unsure}, Took: time.Second}
	answer.Summary = replay.Summary{Turns: 12, Same: 7, Differ: 4, Unjudged: map[replay.Why]int{replay.Expired: 1}}
	for _, c := range []replay.Case{c, moved, broken} {
		answer.Differences = append(answer.Differences, difference{c, differences(c)})
	}
	var out bytes.Buffer
	paper, err := printer.NewPaper(&out, "never")
	if err != nil {
		t.Fatal(err)
	}
	drawReplay(paper, answer)
	for _, want := range []string{
		"deployment-controller/7 shop/web  differs", "~ do[update replicasets.apps:shop/web-1].body.spec.replicas: 4 -> 3", "in another order",
		"now:  panic: no", "replicaset-controller/9", "unjudged: " + string(replay.Expired), "    of pods",
		"      7 decided the same", "      4 decided otherwise; 3 of them are shown", "      1 cannot be judged: " + string(replay.Expired),
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
}

func TestAReplayFailsWhereItShould(t *testing.T) {
	unsure := map[replay.Why]int{replay.Apart: 1}
	for _, c := range []struct {
		of     replay.Summary
		strict bool
		want   string // of the error
	}{
		{replay.Summary{Turns: 3, Same: 3}, true, ""},
		{replay.Summary{Turns: 3, Same: 2, Differ: 1}, false, "1 of 3 turns are decided otherwise"},
		{replay.Summary{Turns: 3, Same: 2, Unjudged: unsure}, false, ""},
		{replay.Summary{Turns: 3, Same: 2, Unjudged: unsure}, true, "1 of 3 turns cannot be judged"},
		{replay.Summary{}, false, ""},
		{replay.Summary{}, true, "there is no turn on record"},
	} {
		err := (&replaying{strict: c.strict}).verdict(c.of)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, strict %v: %v, want %q", c.of, c.strict, err, c.want)
		}
	}
}

func TestKeysAreChosenAsPeopleWriteThem(t *testing.T) {
	web, set := events.Key{Namespace: "shop", Name: "web"}, events.Key{Kind: "replicasets.apps", Namespace: "shop", Name: "web"}
	for _, c := range []struct {
		key, namespace string
		of             events.Key
		want           bool
	}{
		{"", "", web, true}, {"shop/web", "", web, true}, {"shop/web", "", set, true}, {"replicasets.apps:shop/web", "", set, true},
		{"web", "shop", web, true}, {"web", "", web, false}, {"shop/web", "other", web, false}, {"", "shop", set, true}, {"", "other", web, false},
		{"replicasets.apps:shop/web", "", web, false},
	} {
		wanted := (&replaying{key: c.key}).wanted(c.namespace)
		if got := wanted == nil || wanted(c.of); got != c.want {
			t.Errorf("--key=%q -n %q chooses %v: %v", c.key, c.namespace, c.of, got)
		}
	}
}
