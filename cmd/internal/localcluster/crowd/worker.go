package crowd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// worker uses all kinds of workloads other than Deployments, in a namespace of its own.
type worker struct {
	crowd     *Crowd
	namespace string
	rand      *rand.Rand
	have      []thing
	made      int
	limited   bool // the namespace has a quota
}

// thing is an object that a worker has made.
type thing struct {
	kind *workload
	name string
}

// workload is a kind that workers use.
type workload struct {
	name  string
	share int // relative frequency; they add up to about ten
	most  int // at a time
	make  func(w *worker, name string) any
	// change is a merge patch of the spec; nil if users do not change it.
	change func(w *worker) map[string]any
	client func(c *Crowd, namespace string) client
}

// client has the requests of workers for objects of a kind.
type client struct {
	create func(context.Context, any) error
	patch  func(ctx context.Context, name string, kind types.PatchType, body []byte) error
	remove func(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// chore is an action of a worker, with its relative frequency.
type chore struct {
	share int
	name  string
	do    func(*worker, context.Context) error
}

var chores = []chore{
	{8, "make a workload", (*worker).make},
	{10, "change a workload", (*worker).change},
	{5, "delete a workload", (*worker).remove},
	{2, "make one anew under its name", (*worker).makeAnew},
	{6, "delete a pod of a workload", (*worker).deletePod},
	{5, "evict a pod", (*worker).evict},
	{2, "set a quota", (*worker).limit},
	{3, "lift a quota", (*worker).lift},
}

// live does one chore after the other until working ends. At the end it removes what would
// keep the cluster from becoming quiet.
func (w *worker) live(ctx, working context.Context) {
	if !insist(working, func(ctx context.Context) error { return makeNamespace(ctx, w.crowd.client, w.namespace) }) {
		return
	}
	total := 0
	for _, c := range chores {
		total += c.share
	}
	for rest(working, w.rand, w.crowd.options.Pause) {
		drawn, i := w.rand.IntN(total), 0
		for drawn >= chores[i].share {
			drawn -= chores[i].share
			i++
		}
		c := chores[i]
		if len(w.have) == 0 {
			c = chores[0]
		}
		if err := c.do(w, ctx); !errors.Is(err, errNothing) {
			w.crowd.count(c.name, err)
		}
	}
	insist(ctx, w.lift)
	insist(ctx, w.endRuns)
}

// make creates an object of a random kind that does not have too many yet.
func (w *worker) make(ctx context.Context) error {
	total := 0
	for _, k := range workloads {
		total += k.share
	}
	drawn, i := w.rand.IntN(total), 0
	for drawn >= workloads[i].share {
		drawn -= workloads[i].share
		i++
	}
	k, n := &workloads[i], 0
	for _, t := range w.have {
		if t.kind == k {
			n++
		}
	}
	if n >= k.most {
		return errNothing
	}
	w.made++
	return w.makeNamed(ctx, thing{k, names(k.name, w.made)})
}

func (w *worker) makeNamed(ctx context.Context, t thing) error {
	err := t.kind.client(w.crowd, w.namespace).create(ctx, t.kind.make(w, t.name))
	if err == nil || lost(err) {
		w.have = append(w.have, t)
	}
	return err
}

// some is a random object of those that fit.
func (w *worker) some(fits func(thing) bool) (thing, bool) {
	var all []thing
	for _, t := range w.have {
		if fits(t) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return thing{}, false
	}
	return all[w.rand.IntN(len(all))], true
}

func (w *worker) forget(t thing) {
	w.have = slices.DeleteFunc(w.have, func(other thing) bool { return other == t })
}

func (w *worker) change(ctx context.Context) error {
	t, ok := w.some(func(t thing) bool { return t.kind.change != nil })
	if !ok {
		return errNothing
	}
	err := w.patch(ctx, t, t.kind.change(w))
	if isGone(err) {
		w.forget(t)
	}
	return err
}

// policies are the propagation policies with which users delete.
var policies = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

func (w *worker) remove(ctx context.Context) error {
	t, ok := w.some(func(thing) bool { return true })
	if !ok {
		return errNothing
	}
	return w.drop(ctx, t, policies[w.rand.IntN(len(policies))])
}

func (w *worker) drop(ctx context.Context, t thing, policy metav1.DeletionPropagation) error {
	switch {
	case policy == metav1.DeletePropagationOrphan && !t.kind.adopts():
		policy = metav1.DeletePropagationBackground // no object would adopt the orphans
	case policy == metav1.DeletePropagationForeground && t.kind.name == "statefulset":
		// A pod and the claim that goes with it would wait for each other for ever.
		//
		// Upstream: podUsesPVCForDeletion in pkg/controller/volume/pvcprotection.
		policy = metav1.DeletePropagationBackground
	}
	err := t.kind.client(w.crowd, w.namespace).remove(ctx, t.name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err == nil || isGone(err) {
		w.forget(t)
	}
	if err == nil && policy == metav1.DeletePropagationOrphan {
		return w.again(ctx, t)
	}
	return err
}

// makeAnew deletes an object and creates another one with its name as soon as that is free.
func (w *worker) makeAnew(ctx context.Context) error {
	t, ok := w.some(func(thing) bool { return true })
	if !ok {
		return errNothing
	}
	if err := w.drop(ctx, t, metav1.DeletePropagationBackground); err != nil {
		return err
	}
	return w.again(ctx, t)
}

func (w *worker) again(ctx context.Context, t thing) error {
	insist(ctx, func(ctx context.Context) error {
		err := w.makeNamed(ctx, t)
		if slices.Contains(w.have, t) {
			return nil
		}
		return err // the deletion of the old one may take a while
	})
	return nil
}
