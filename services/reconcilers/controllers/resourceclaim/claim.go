package resourceclaim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/device"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// lasting is for how long an answer is valid.
const lasting = 30 * time.Second

func observeClaim(s reconcile.Snapshot, k events.Key) (View, bool) {
	claim, ok := reconcile.Get(s, kinds.ResourceClaims, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Claim: claim}
	for _, name := range podsOf(claim) {
		if p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, name); ok {
			v.Pods = append(v.Pods, p)
		}
	}
	if claim.Status.Allocation != nil {
		of := lookup(s, k.Namespace)
		for _, p := range reconcile.List(s, kinds.Pods, k.Namespace) {
			if len(p.Spec.ResourceClaims) > 0 && reserves(p, claim, of) {
				v.Waiting = append(v.Waiting, p)
			}
		}
	}
	if last, ok := reconcile.Answers(s, k, claim); ok {
		for _, r := range last.Results {
			v.hear(r, last.At)
		}
		v.At = last.At
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, claim); ok {
		v.Deallocated = claim.ResourceVersion != "" && slices.ContainsFunc(last.Results, func(r events.Result) bool {
			return r.OK() && r.Ref.Kind == kinds.ResourceClaims.Name && r.Version == claim.ResourceVersion
		})
	}
	return v, true
}

// podsOf are the names of the pods for which a claim is reserved, and of the pod for which it was
// created, each once.
func podsOf(claim *resourcev1.ResourceClaim) (names []string) {
	for _, by := range claim.Status.ReservedFor {
		if device.IsPod(by) && !slices.Contains(names, by.Name) {
			names = append(names, by.Name)
		}
	}
	if owner, ok := ownerOf(claim); ok && !slices.Contains(names, owner.Name) {
		names = append(names, owner.Name)
	}
	return names
}

// hear reads an answer.
func (v *View) hear(r events.Result, at time.Time) {
	if r.Ref.Kind != kinds.Pods.Name || r.Status != events.Answered && r.Status != events.Absent {
		return
	}
	p := new(corev1.Pod)
	if r.Status == events.Answered {
		if err := reconcile.ReadObject(r, kinds.Pods.Kind.Kind, p); err != nil {
			v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
			return
		}
	}
	if v.Live == nil {
		v.Live = map[string]types.UID{}
	}
	v.Live[r.Ref.Name] = p.UID
}

// fate is the known state of a pod.
type fate int

const (
	// unknown: the API server must be asked for the pod.
	unknown fate = iota
	// there: the pod may run, or need its reservation.
	there
	// ended: the pod is seen, and none of its containers runs or will run.
	ended
	// gone: the pod is known not to exist any more.
	gone
)

// fateOf is the state of the pod with a name and uid. A pod that is not seen, or whose name
// another pod has, is gone only if an answer of the API server says so.
func (v View) fateOf(name string, uid types.UID, now time.Time) fate {
	if p := v.seen(name); p != nil && p.UID == uid {
		if done(p) {
			return ended
		}
		return there
	}
	switch live, told := v.Live[name]; {
	case !told || !now.Before(v.At.Add(lasting)):
		return unknown
	case live == uid:
		return there
	default:
		return gone
	}
}

// seen is the pod that is seen under a name; nil if there is none.
func (v View) seen(name string) *corev1.Pod {
	for _, p := range v.Pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// sees reports whether the pod with this uid is seen, and not another one of its name.
func (v View) sees(name string, uid types.UID) bool {
	p := v.seen(name)
	return p != nil && p.UID == uid
}

// prospects are the changes that a claim needs.
type prospects struct {
	// reserved are the reservations that stay, and the new ones.
	reserved []resourcev1.ResourceClaimConsumerReference
	// changed: reserved differs from the claim's reservations.
	changed bool
	// unsure are the names of the pods whose existence is not known.
	unsure []string
	// unneeded: the claim was created for a pod that does not need it any more.
	unneeded bool
	// unseen: a pod exists that is not seen.
	unseen bool
}

func (v View) prospects(now time.Time) (p prospects) {
	for _, by := range v.Claim.Status.ReservedFor {
		if !device.IsPod(by) {
			p.reserved = append(p.reserved, by)
			continue
		}
		switch v.fateOf(by.Name, by.UID, now) {
		case ended, gone:
			p.changed = true
			continue
		case unknown:
			p.ask(by.Name)
		case there:
			p.unseen = p.unseen || !v.sees(by.Name, by.UID)
		}
		p.reserved = append(p.reserved, by)
	}
	for _, pod := range v.Waiting {
		if len(p.reserved) < resourcev1.ResourceClaimReservedForMaxSize && v.Claim.Status.Allocation != nil {
			p.changed = true
			p.reserved = append(p.reserved, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
	}
	if owner, ok := ownerOf(v.Claim); ok && len(p.reserved) == 0 && v.Claim.DeletionTimestamp == nil && v.seen(owner.Name) != nil {
		switch v.fateOf(owner.Name, owner.UID, now) {
		case ended, gone:
			p.unneeded = true
		case unknown:
			p.ask(owner.Name)
		case there:
			p.unseen = p.unseen || !v.sees(owner.Name, owner.UID)
		}
	}
	return p
}

func (p *prospects) ask(name string) {
	if !slices.Contains(p.unsure, name) {
		p.unsure = append(p.unsure, name)
	}
}

// decideClaim removes and makes reservations, deallocates unused devices, and deletes a claim
// whose pod has ended.
//
// Upstream: pkg/controller/resourceclaim, syncClaim.
func (v View) decideClaim(now time.Time) reconcile.Decision {
	d := v.step(now)
	d.Figures = append(d.Figures, v.counted())
	return d
}

func (v View) step(now time.Time) reconcile.Decision {
	p, claim := v.prospects(now), v.Claim
	held, free := finalizer.Has(claim, protection), len(p.reserved) == 0
	switch {
	case p.changed && free:
		return v.report("the pods that the claim was reserved for do not need it any more", nil, held)
	case p.changed:
		return v.report("the claim is to be reserved for other pods", p.reserved, false)
	case len(p.unsure) > 0:
		return v.Unread.Ask(now, "it is not known whether a pod is there that the claim is for", v.ask(p.unsure)...)
	case held && free && claim.DeletionTimestamp != nil && claim.Status.Allocation != nil:
		return v.report("the claim is deleted, and reserved for no pod", nil, true)
	case held && free && claim.DeletionTimestamp != nil:
		return v.release("the claim is deleted, and has no devices")
	case held && free && v.Deallocated && claim.Status.Allocation == nil:
		return v.release("the devices of the claim were let go of")
	case p.unneeded:
		return reconcile.Do("the claim's pod no longer needs it", reconcile.Delete(kinds.ResourceClaims.Kind, claim))
	case p.unseen:
		return reconcile.Wake(v.At.Add(lasting), "a pod that the claim is reserved for exists, and the cache does not have it yet")
	default:
		return reconcile.Nothing("the claim is up to date")
	}
}

// ask asks for pods.
func (v View) ask(names []string) (all []events.Command) {
	for _, name := range names {
		all = append(all, reconcile.AskFor(kinds.Pods.Kind, v.Claim.Namespace, name))
	}
	return all
}

// report writes the reservations of the claim, and deallocates its devices if deallocated is true.
// It waits for a view that includes everything done for the claim.
func (v View) report(because string, reserved []resourcev1.ResourceClaimConsumerReference, deallocated bool) reconcile.Decision {
	next := *v.Claim // the changed parts are made anew
	next.Status.ReservedFor = reserved
	if deallocated {
		next.Status.Allocation = nil
	}
	d := reconcile.Do(because, reconcile.UpdateStatus(kinds.ResourceClaims.Kind, &next))
	d.Sure = true
	return d
}

// release removes the finalizer.
func (v View) release(because string) reconcile.Decision {
	next := *v.Claim // shallow: only the list of finalizers changes, and is made anew
	finalizer.Remove(&next, protection)
	return reconcile.Do(because, reconcile.Update(kinds.ResourceClaims.Kind, &next))
}
