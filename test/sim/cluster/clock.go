package cluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
)

// Pass has users pause for a few rounds of autoscalers.
func Pass(w *Cluster) { w.Lull = w.Now.Add(time.Duration(1+w.Roll(60)) * time.Second) }

// Does adds a possible next step.
func Does(w *Cluster, ref events.Ref, note string, change func(metav1.Object)) {
	w.Work = append(w.Work, func() { w.Note("%s: %v", note, ref); w.API.Change(ref, change) })
}

// FarAhead is how far a clock of the reconcilers is ahead at most.
const FarAhead = time.Hour

// WaitLong has users wait for up to some minutes.
func WaitLong(w *Cluster) { w.Lull = w.Now.Add(time.Duration(30+w.Roll(240)) * time.Second) }

// Wait has users pause.
func Wait(w *Cluster) { w.Lull = w.Now.Add(time.Duration(1+w.Roll(180)) * time.Second) }

// lastHours is how many times time passes at the end, each time by more than a day.
const lastHours = 3

// InLastHours lets time pass instead, once few operations are left.
func InLastHours(do Operation) Operation {
	return func(w *Cluster) {
		if w.Changes < lastHours {
			PassHours(w)
			return
		}
		do(w)
	}
}

// PassHours lets time pass: some minutes, an hour, or in the end more than a day.
func PassHours(w *Cluster) {
	d := []time.Duration{10 * time.Minute, 61 * time.Minute, 25 * time.Hour}[w.Roll(3)]
	if w.Changes < lastHours {
		d = 25 * time.Hour
		w.Lull = w.Now.Add(d + time.Minute)
	}
	w.Note("%v pass", d)
	w.Advance(w.Now.Add(d))
}

// MaxAge is the greatest age of a turn that a writer still carries out.
const MaxAge = 2 * time.Minute
