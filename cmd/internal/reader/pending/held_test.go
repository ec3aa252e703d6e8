package pending

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

var heldSet = standing.Held{
	Controller: "replicaset-controller", Key: events.Key{Namespace: "shop", Name: "web-1"}, Object: events.Ref{Kind: "replicasets.apps", Namespace: "shop", Name: "web-1"},
	UID: "u1", Generation: 4, Because: "too many pods",
	Writes: []standing.HeldWrites{{Limit: "pods", Writes: 3, First: "delete pods:shop/a", Message: "the limit is reached"}, {Limit: "all", Writes: 1, First: "delete pods:shop/d", Message: "no room"}},
}

// What is held is shown with the command that approves it.
func TestWhatIsHeldIsDrawn(t *testing.T) {
	nameless := standing.Held{Controller: "c", Key: events.Key{Name: "node-1"}, Because: "it is gone", Writes: []standing.HeldWrites{{Limit: "pods", Writes: 1, First: "delete pods:shop/a", Message: "no room"}}}
	cluster := standing.Held{Controller: "c", Key: events.Key{Name: "shop"}, Object: events.Ref{Kind: "namespaces", Name: "shop"}, UID: "u2", Because: "it is to go", Writes: nameless.Writes}
	for what, c := range map[string]struct {
		held []standing.Held
		want []string
	}{
		"nothing": {nil, []string{"no write is held"}},
		"a set": {[]standing.Held{heldSet}, []string{
			"replicaset-controller shop/web-1: too many pods", "delete pods:shop/a and 2 more: the limit is reached", "delete pods:shop/d: no room",
			"kubectl millrace approve replicasets.apps/web-1 -n shop, or deny",
		}},
		"a key without an object":           {[]standing.Held{nameless}, []string{"cannot be approved"}},
		"an object without a namespace":     {[]standing.Held{cluster}, []string{"approve namespaces/shop, or deny"}},
		"one with an object comes after it": {[]standing.Held{nameless, heldSet}, []string{"c node-1: it is gone", "replicaset-controller shop/web-1"}},
	} {
		var out bytes.Buffer
		paper, err := printer.NewPaper(&out, "never")
		readertest.Must(t, err)
		drawHeld(paper, c.held)
		for _, line := range c.want {
			if !strings.Contains(out.String(), line) {
				t.Errorf("%s: there is no %q in\n%s", what, line, out.String())
			}
		}
	}
}

// A decision is about every limit that holds writes of the object, or about those of the flag.
func TestWhatADecisionIsAbout(t *testing.T) {
	other := heldSet
	other.Object.Name, other.UID = "web-2", "u2"
	earlier := heldSet
	earlier.Generation, earlier.Writes = 3, []standing.HeldWrites{{Limit: "claims"}}
	for what, c := range map[string]struct {
		held         []standing.Held
		limits       []string
		want, errors string
	}{
		"all":             {[]standing.Held{heldSet, other}, nil, "all pods", ""},
		"one":             {[]standing.Held{heldSet}, []string{"pods"}, "pods", ""},
		"two keys of one": {[]standing.Held{earlier, heldSet}, nil, "all claims pods", ""},
		"another's":       {[]standing.Held{other}, nil, "", "none is held"},
		"another limit":   {[]standing.Held{heldSet}, []string{"claims"}, "", `the limit "claims" holds none of them; those that do: pods, all`},
	} {
		r := ruling{limits: c.limits, because: "ticket 4711"}
		a, uid, err := r.about(heldSet.Object, c.held)
		switch {
		case c.errors != "":
			if err == nil || !strings.Contains(err.Error(), c.errors) {
				t.Errorf("%s: %v, want %q", what, err, c.errors)
			}
		case err != nil || uid != "u1" || strings.Join(a.Limits, " ") != c.want || a.Generation != 4 || a.Because != "ticket 4711":
			t.Errorf("%s: %+v of %s, %v", what, a, uid, err)
		}
	}
}

// approve and deny need held writes, and say so before they ask for a cluster.
func TestNothingIsApprovedThatIsNotHeld(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	for _, verb := range []string{"approve", "deny"} {
		if _, err := w.Millrace(verb, "deploy/web", "-n=shop", "--kubeconfig=/nowhere"); err == nil || !strings.Contains(err.Error(), verb+" the writes of deployments.apps:shop/web: none is held; millrace held lists those that are") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if said, err := w.Millrace("held"); err != nil || !strings.Contains(said, "no write is held") {
		t.Errorf("held says %q, %v", said, err)
	}
}
