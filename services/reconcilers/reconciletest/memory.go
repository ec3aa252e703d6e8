package reconciletest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Belief states which outcomes change a controller's view of the object that it decides on.
type Belief struct {
	// Remembers is true if the controller reads outcomes at all.
	Remembers bool
	// Own: an outcome about the object as it is now; Older: an answer to a question about an
	// older version of it; Another: an outcome about another object of that name.
	Own, Older, Another bool
}

// Beliefs finds the outcomes that a controller uses, in a world of one object of its kind.
//
// Errors: the controller has no view of the object; a view cannot be encoded as JSON.
func Beliefs(c reconcile.Any) (b Belief, err error) {
	own, key := standIn(c)
	world := NewWorld().Put(own.Kind, own.Object)
	spy := &witness{World: world}
	if c.Look(spy, key); !spy.asked {
		return Belief{}, nil
	}
	without, err := seen(c, world, key)
	for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		believes := func(uid types.UID, version string) bool {
			w := NewWorld().Put(own.Kind, own.Object).Remember(events.Outcome{
				Key: key, Lane: lane, UID: uid, ResourceVersion: version, Turn: 9, At: Now, Results: resultsOf(lane, Now),
			})
			with, failed := seen(c, w, key)
			if err == nil {
				err = failed
			}
			return !bytes.Equal(with, without)
		}
		b.Own = believes("u", "2") || b.Own
		b.Older = lane == events.LaneWrite && believes("u", "1") || b.Older
		b.Another = believes("another", "2") || believes("", "") || b.Another
	}
	b.Remembers = true
	return b, err
}

// witness is a world that records whether outcomes were read.
type witness struct {
	*World
	asked bool
}

func (w *witness) Last(k events.Key, lane events.Lane) (events.Outcome, bool) {
	w.asked = true
	return w.World.Last(k, lane)
}

func seen(c reconcile.Any, w *World, k events.Key) ([]byte, error) {
	view, ok, err := c.View(w, k)
	if err == nil && !ok {
		err = fmt.Errorf("view %v: there is none", k)
	}
	return view, err
}

// standIn returns an object that a controller decides on, and its key. If keys are not objects,
// it returns an object that the controller reads, and the key to which that maps.
func standIn(c reconcile.Any) (own reconcile.Object, key events.Key) {
	d := c.Describe()
	own, key = anObject(d)
	if _, ok := c.Look(NewWorld().Put(own.Kind, own.Object), key); ok || d.Owns != nil {
		return own, key
	}
	for _, in := range d.Inputs {
		d.Owns = &in.Kind
		if own, key = anObject(d); in.Keys == nil {
			continue
		}
		if keys := NewWorld().Put(own.Kind, own.Object).Keys(c, own.Kind, nil, own.Object); len(keys) > 0 {
			return own, keys[0]
		}
	}
	return own, key
}

// anObject returns an object of a controller's own kind, and its key; a ReplicaSet if keys have
// any kind. It is being deleted, because some controllers read outcomes only then.
func anObject(d reconcile.Description) (reconcile.Object, events.Key) {
	kind, key := kinds.ReplicaSets.Kind, events.Key{Namespace: Namespace, Name: "web"}
	if d.Owns != nil {
		kind = *d.Owns
	} else {
		key.Kind = kind.Name
	}
	if !kind.Namespaced {
		key.Namespace = ""
	}
	obj := metav1.Object(&metav1.PartialObjectMetadata{})
	if made, err := kinds.Scheme().New(kind.GVK()); err == nil && kind.Form == kinds.Full {
		obj = made.(metav1.Object)
	}
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	obj.SetUID("u")
	obj.SetResourceVersion("2")
	obj.SetFinalizers([]string{"a/b"})
	obj.SetDeletionTimestamp(&metav1.Time{Time: Now})
	obj.SetAnnotations(map[string]string{"kubernetes.io/service-account.name": "default"})
	return reconcile.Object{Kind: kind, Object: obj}, key
}

// resultsOf returns results of every kind that a controller reads, with notes of a moment.
func resultsOf(lane events.Lane, now time.Time) []events.Result {
	asked := now.Add(-time.Second)
	count := []map[string]any{{"replicas": 1, "at": asked}}
	note := reconcile.Body(map[string]any{
		"asked": asked, "memory": map[string]any{ // of an autoscaler
			"asked": asked.Add(-time.Minute), "recommended": count, "added": count, "removed": count,
		},
		"uid": "v", "occasion": "o", // of a budget
		"since": asked, "until": now.Add(time.Minute), // of an eviction
		"announced": true,             // of another one
		"schedule":  "@daily",         // of a CronJob, since when
		"account":   "default",        // of a token
		"told":      "x",              // of a claim that waits
		"volumes":   []string{"data"}, // of a pod with two labels
	})
	if lane == events.LaneStatus {
		return []events.Result{
			{Status: events.Applied, Answer: &events.Answer{Note: note}},
			{Status: events.Applied, Ref: events.Ref{Kind: kinds.Events.Name, Name: "told"}},
		}
	}
	answer := &events.Answer{Note: note, Body: json.RawMessage(`{"unheard":"of"}`)}
	return []events.Result{
		{Status: events.Answered, Ref: events.Ref{Kind: kinds.Leases.Name, Namespace: metav1.NamespaceSystem, Name: "server"}, Answer: answer},
		{Status: events.Refused, Code: 422, Ref: events.Ref{Kind: kinds.Pods.Name, Name: "p"}, UID: "p", Answer: answer},
	}
}
