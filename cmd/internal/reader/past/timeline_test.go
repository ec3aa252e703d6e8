package past

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

// TestTheHistoryOfANamespace: it has the happenings of all its objects, oldest first.
func TestTheHistoryOfANamespace(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	said, err := w.Millrace("history", "-n=feat")
	if readertest.Must(t, err); !strings.Contains(said, "configmaps:feat/colours") || strings.Contains(said, "shop/web") {
		t.Errorf("it is\n%s", said)
	}
	said, err = w.Millrace("history", "-n=shop")
	readertest.Must(t, err)
	created, turn, running := strings.Index(said, "deployments.apps:shop/web "), strings.Index(said, "write: no ReplicaSet matches the pod template"), strings.LastIndex(said, "pods:shop/web-1-2")
	if created < 0 || turn < created || running < turn {
		t.Errorf("it is not in order:\n%s", said)
	}
	said, err = w.Millrace("history", "-n=shop", "--limit=2")
	if readertest.Must(t, err); strings.Count(said, "\n") != 3 || !strings.Contains(said, "--limit=0 shows all") {
		t.Errorf("the newest two are\n%s", said)
	}
	var c record.Chronicle
	said, err = w.Millrace("history", "-n=shop", "-o=json")
	if readertest.Must(t, err); json.Unmarshal([]byte(said), &c) != nil || len(c.Items) == 0 || c.Items[0].Time.After(c.Items[len(c.Items)-1].Time) {
		t.Errorf("as JSON it is\n%s", said)
	}
	said, err = w.Millrace("history", "-n=nosuch")
	if want := "nothing is on record of namespace nosuch; there is no namespace nosuch on record\n"; err != nil || !strings.HasPrefix(said, want) {
		t.Errorf("it is %q, %v; want %q", said, err, want)
	}
}

// TestGapsThatBeginTogetherAreOne: the history of a namespace shows them as one line, so that they
// do not hide other happenings.
func TestGapsThatBeginTogetherAreOne(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	for _, kind := range []kinds.Name{"pods", "configmaps", "deployments.apps", "nodes"} {
		readertest.Must(t, w.Gap(t.Context(), kind, "a restart", time.Now().Add(-time.Minute)))
	}
	said, err := w.Millrace("history", "-n=feat", "--limit=2")
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if err != nil || len(lines) != 3 || !strings.Contains(lines[1], "configmaps:feat/colours") || !strings.Contains(lines[2], " and 2 more ") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestTailSaysWhatItWaitsFor: tail says on stderr what it waits for; with --since it begins with
// earlier happenings.
func TestTailSaysWhatItWaitsFor(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	for args, want := range map[string][]string{
		"--kind=pods -n=shop":       {"waiting for changes of pods in namespace shop; Ctrl-C ends it\n"},
		"":                          {"waiting for deltas, turns and outcomes in all namespaces; Ctrl-C ends it\n"},
		"--controller=replicaset":   {"waiting for turns and outcomes of replicaset-controller in all namespaces; Ctrl-C ends it\n"},
		"--kind=cm --name=colours":  {"waiting for changes of configmaps named colours in all namespaces; Ctrl-C ends it\n"},
		"--since=1h --kind=cm,pods": {"configmaps:shop/flags", "pods:shop/web-1-2", "configmaps:feat/colours", "waiting for changes of configmaps, pods in all namespaces; Ctrl-C ends it\n"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		said := &until{mark: "waiting for", reached: interrupt}
		readertest.Must(t, readertest.Run(ctx, Commands(), said, append([]string{"tail", w.Address}, strings.Fields(args)...)...))
		place := 0
		for _, part := range want {
			at := strings.Index(said.String()[place:], part)
			if at < 0 {
				t.Errorf("millrace tail %s lacks %q behind %d:\n%s", args, part, place, said.String())
				continue
			}
			place += at
		}
		interrupt()
	}
	_, err := w.Millrace("tail", "--since=81723")
	readertest.Says(t, err, []string{"tail"}, "read --since", "is a resourceVersion")
}

// until is a writer that interrupts the command when the output has a mark.
type until struct {
	readertest.Buffer
	mark    string
	reached func()
}

func (u *until) Write(text []byte) (int, error) {
	n, err := u.Buffer.Write(text)
	if strings.Contains(u.String(), u.mark) {
		u.reached()
	}
	return n, err
}

// TestSightIsShort: for a decision that had read all kinds, sight lists only those of its causes.
func TestSightIsShort(t *testing.T) {
	d := &record.Decision{ResourceVersion: "7", Seen: events.Position{"pods": 3, "replicasets.apps": 4}}
	if got := sight(d, nil); got != "its object @7, pods up to 3, replicasets.apps up to 4" {
		t.Errorf("of two kinds it is %q", got)
	}
	for _, kind := range []kinds.Name{"a", "b", "c", "d"} {
		d.Seen[kind] = 1
	}
	causes := []*record.Cause{{Version: record.Version{Object: events.Ref{Kind: "pods"}}}}
	if got := sight(d, causes); got != "its object @7, pods up to 3, 5 other kinds" {
		t.Errorf("of six kinds it is %q", got)
	}
	if got := sight(&record.Decision{Seen: d.Seen}, nil); got != "6 other kinds" {
		t.Errorf("where none matters it is %q", got)
	}
}
