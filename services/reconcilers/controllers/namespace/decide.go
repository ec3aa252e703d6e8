package namespace

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// settle is how long after its deletion a namespace is left alone.
	//
	// Upstream: pkg/controller/namespace, namespaceDeletionGracePeriod.
	settle = 5 * time.Second
	// soon is the shortest time until the next look at objects that take time to be deleted.
	// seldom is the longest where the expected time is not known.
	soon   = 500 * time.Millisecond
	seldom = time.Minute
	// held is the expected time, in seconds, for which finalizers hold an object.
	//
	// Upstream: pkg/controller/namespace/deletion, finalizerEstimateSeconds.
	held = 15
	// behindAll sorts after every object's name: a kind whose objects were all tried waits
	// there for the others.
	behindAll = "~"
	// lasting is how old an answer may be when the finalizer is removed because of it.
	lasting = 30 * time.Second
)

// decide empties the namespace, and removes its finalizer when it is empty.
//
// Upstream: pkg/controller/namespace/deletion, Delete and deleteAllContent.
func decide(v View, now time.Time) reconcile.Decision {
	begin := v.begin()
	switch ns := v.Namespace; {
	case ns.DeletionTimestamp == nil:
		return reconcile.Nothing("the namespace is not being deleted")
	case ns.Status.Phase != corev1.NamespaceTerminating:
		said := ns.DeepCopy()
		said.Status.Phase = corev1.NamespaceTerminating
		return reconcile.Do("the namespace is being deleted, and its phase is not Terminating", reconcile.UpdateStatus(kinds.Namespaces.Kind, said))
	case len(ns.Spec.Finalizers) == 0:
		return reconcile.Nothing("the namespace has been emptied")
	case now.Before(begin):
		return reconcile.Wake(begin, "the namespace has just been deleted")
	case v.Contents == nil:
		return v.Unread.Ask(now, "what is in the namespace is not known", v.ask())
	}
	return v.judge(now)
}

// judge decides on an answer. It reports nothing about objects that it is about to delete. A
// report comes before other writes, unless the API server refused the last one.
//
// Upstream: pkg/controller/namespace/deletion, deleteAllContent, which goes on where the
// conditions cannot be written.
func (v View) judge(now time.Time) reconcile.Decision {
	fresh, again := v.due()
	conditions := v.conditions(now)
	switch {
	case len(fresh) > 0:
		return v.clear("the namespace is being deleted, and this is in it", fresh)
	case slices.Equal(conditions, v.Namespace.Status.Conditions):
		return v.goOn(again, now)
	}
	said := v.Namespace.DeepCopy()
	said.Status.Conditions = conditions
	report := reconcile.Do("the progress of the deletion has changed", reconcile.UpdateStatus(kinds.Namespaces.Kind, said))
	if !v.Unsaid {
		return report
	}
	return reconcile.Join(report, v.goOn(again, now))
}

// goOn waits for terminating objects, deletes remaining ones again, asks again for the
// contents, or removes the finalizer.
func (v View) goOn(again []events.Command, now time.Time) reconcile.Decision {
	next := v.next()
	switch {
	case !v.empty() && now.Before(next):
		return reconcile.Wake(next, v.waits())
	case len(again) > 0:
		return v.clear("what is in the namespace did not go when it was deleted", again)
	case v.empty() && !slices.Contains(v.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes):
		return reconcile.Nothing("the namespace is empty, and other controllers' finalizers remain")
	case !v.empty(), now.Sub(v.At) > lasting:
		return reconcile.Do("the namespace may be empty by now", v.ask())
	default:
		return reconcile.Do("the namespace is empty", v.finalize())
	}
}

// begin is when the controller may begin to empty the namespace.
func (v View) begin() time.Time {
	if v.Namespace.DeletionTimestamp == nil {
		return time.Time{}
	}
	return v.Namespace.DeletionTimestamp.Add(settle)
}

// ask asks what is in the namespace.
func (v View) ask() events.Command { return v.askBehind(nil) }

// askBehind asks what is in the namespace, for some kinds only after a name.
func (v View) askBehind(names map[kinds.Name]string) events.Command {
	return reconcile.AskContents(v.Namespace, query.ContentsQuestion{First: []kinds.Name{kinds.Pods.Name}, After: names})
}

// clear deletes objects, and asks what is left after that. If the answer did not name all
// remaining objects, it asks for those after the named ones, so that objects which cannot be
// deleted hold up no others.
func (v View) clear(because string, what []events.Command) reconcile.Decision {
	var names map[kinds.Name]string
	for _, h := range v.Contents.Kinds {
		if !h.Part && !h.Again || len(h.Standing) == 0 {
			continue
		}
		if names == nil {
			names = map[kinds.Name]string{}
		}
		if names[h.Kind] = behindAll; slices.ContainsFunc(what, func(c events.Command) bool { return c.Kind == h.Kind }) {
			names[h.Kind] = h.Standing[len(h.Standing)-1].Name
		}
	}
	return reconcile.Do(because, append(what, v.askBehind(names))...)
}

// due are the deletes of remaining objects: fresh if they were not tried just before, again
// if they were tried without effect, or if all of their kind were.
func (v View) due() (fresh, again []events.Command) {
	tried := map[types.UID]bool{}
	for _, r := range v.Refused {
		tried[r.UID] = true
	}
	for _, uid := range v.Deleted {
		tried[uid] = true
	}
	for _, h := range v.Contents.Kinds {
		kind := kinds.Kind{Name: h.Kind, Version: h.Version}
		for _, o := range h.Standing {
			meta := &metav1.ObjectMeta{Namespace: v.Namespace.Name, Name: o.Name, UID: o.UID}
			command := reconcile.Delete(kind, meta, reconcile.Propagate(metav1.DeletePropagationBackground))
			if tried[o.UID] || h.Again {
				again = append(again, command)
			} else {
				fresh = append(fresh, command)
			}
		}
	}
	return fresh, again
}

// empty is true if every kind is known, could be listed and is empty.
func (v View) empty() bool {
	c := v.Contents
	return len(c.Kinds) == 0 && !c.Partial && c.Undiscovered == "" && c.Unparsed == ""
}

// next is when to look again: after half the time that the deletion has taken so far, or
// half the time that it is expected to take.
func (v View) next() time.Time {
	most := seldom
	if estimate := v.estimate(); estimate > 0 && len(v.troubles()) == 0 {
		most = time.Duration(estimate/2+1) * time.Second
	}
	return v.At.Add(min(max(v.At.Sub(v.begin())/2, soon), most))
}

// estimate is how many seconds the rest is expected to take; 0 if that is not known.
func (v View) estimate() (seconds int64) {
	for _, h := range v.Contents.Kinds {
		switch {
		case h.Grace > v.since():
			seconds = max(seconds, h.Grace)
		case len(h.Finalizers) > 0:
			seconds = max(seconds, held)
		}
	}
	return seconds
}

// since is for how many seconds the namespace had been terminating when the answer came.
func (v View) since() int64 {
	if v.Namespace.DeletionTimestamp == nil {
		return 0
	}
	return int64(v.At.Sub(v.Namespace.DeletionTimestamp.Time) / time.Second)
}

func (v View) waits() string {
	switch c := v.Contents; {
	case c.Undiscovered != "" || c.Unparsed != "":
		return "not every kind of object that may be in the namespace is known"
	case c.Partial:
		return "its pods are on their way out"
	default:
		return "what is in the namespace is being deleted"
	}
}

// finalize removes the finalizer "kubernetes", and no other.
func (v View) finalize() events.Command {
	ns := v.Namespace.DeepCopy()
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	c := reconcile.Update(kinds.Namespaces.Kind, ns)
	c.Subresource = "finalize"
	return c
}
