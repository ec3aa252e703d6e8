package controllers

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// heirs are controllers that use the results of a turn about a deleted object, and why.
var heirs = map[string]string{
	"node-lifecycle-controller": "the end of the node that had the name before is told",
	"node-ipam-controller":      "its key is all nodes, and each offer in the note names the uid of its own",
}

// timeless are controllers that accept an answer about an older version of their object, and why.
var timeless = map[string]string{
	"horizontal-pod-autoscaler-controller": "nothing of the answer counts but when its round began",
	"storage-version-migrator-controller":  "the question says of which resource, and what has changed since which version",
	"namespace-controller":                 "the question is what is in it; a namespace that is being deleted stays so",
	"disruption-controller":                "the question is who controls its pods; the occasion in the note tells which pods",
}

// Controllers use the results of a turn only if it was about the present object, and an
// answer only if it was about its present version. They ignore those about another object
// of the same name.
func TestWhatIsRememberedIsAboutTheObject(t *testing.T) {
	remembering := 0
	for _, e := range Catalog() {
		if !e.Exists() {
			continue
		}
		c := e.make(config)
		b, err := reconciletest.Beliefs(c)
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		if !b.Remembers {
			continue
		}
		remembering++
		asks := slices.ContainsFunc(c.Describe().Writes, func(w reconcile.Write) bool { return w.Verb == events.VerbAsk })
		switch {
		case !b.Own:
			t.Errorf("%s looks at what it remembers, and nothing here changes what it sees: the test has lost its point", e.Name)
		case b.Another != (heirs[e.Name] != ""):
			t.Errorf("%s believes what was about another object of that name: %v", e.Name, b.Another)
		case asks && b.Older != (timeless[e.Name] != ""):
			t.Errorf("%s believes an answer to a question about an older version: %v", e.Name, b.Older)
		}
	}
	if remembering < 15 {
		t.Errorf("only %d controllers remember anything: the test has lost its point", remembering)
	}
}

// later are the times in views that may be later than the time at which they were
// received, and why.
var later = map[string]string{
	"taint-eviction-controller .stay.until":               "the pod may stay for as long after it was noted",
	"horizontal-pod-autoscaler-controller .memory.asked":  "it tells rounds apart, and waits begin with .known",
	"horizontal-pod-autoscaler-controller .begun":         "it tells rounds apart",
	"horizontal-pod-autoscaler-controller .asked":         "it tells rounds apart",
	"horizontal-pod-autoscaler-controller .verdict.asked": "it tells rounds apart",
}

// For every controller, and whatever the clock, no time that a turn noted, asked or acted
// at is later than its receipt: so no wait for it is longer than intended.
func TestNoClockAheadMakesAnyoneWait(t *testing.T) {
	for _, e := range Catalog() {
		if !e.Exists() {
			continue
		}
		c := e.make(config)
		if b, err := reconciletest.Beliefs(c); err != nil || !b.Remembers {
			continue
		}
		paths, err := reconciletest.Ahead(c)
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		for _, path := range paths {
			if later[e.Name+" "+path] == "" {
				t.Errorf("%s has %s of an hour ahead in its view", e.Name, path)
			}
		}
	}
}
