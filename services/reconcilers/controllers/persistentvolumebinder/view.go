package persistentvolumebinder

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	if k.Kind == kinds.PersistentVolumes.Name {
		return observeVolume(s, k)
	}
	return observeClaim(s, k)
}

func observeClaim(s reconcile.Snapshot, k events.Key) (View, bool) {
	claim, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Claim: claim}
	if name := claim.Spec.VolumeName; name != "" {
		v.Named, _ = reconcile.Get(s, kinds.PersistentVolumes, "", name)
	} else if !has(claim, completed) {
		v.look(s)
	}
	if last, ok := reconcile.Answers(s, k, claim); ok {
		v.hear(last, kinds.PersistentVolumes.Kind)
	}
	if has(claim, provisioner) && !has(claim, completed) {
		v.Asked = asked(s, k, claim)
	}
	v.recall(s, k)
	return v, true
}

// asked is when the provisioner was asked for a volume, if that was the last write for the claim;
// otherwise zero.
func asked(s reconcile.Snapshot, k events.Key, claim *corev1.PersistentVolumeClaim) time.Time {
	last, ok := reconcile.LastOf(s, k, events.LaneWrite, claim)
	if !ok || len(last.Results) != 1 {
		return time.Time{}
	}
	r := last.Results[0]
	if r.Status != events.Applied || r.Ref.Kind != kinds.PersistentVolumeClaims.Name {
		return time.Time{}
	}
	return last.Decided
}

// look collects the volumes and the class that a claim without a volume may have.
func (v *View) look(s reconcile.Snapshot) {
	claim := v.Claim
	selector, err := selectorOf(claim)
	var best offers
	for _, volume := range reconcile.List(s, kinds.PersistentVolumes, "") {
		if err == nil && fits(volume, claim, selector, false) {
			best.add(candidateFor(claim, volume))
		}
	}
	for _, c := range best.best {
		v.Volumes = append(v.Volumes, c.volume)
	}
	if !hasClass(claim) {
		v.Default = defaultClass(s)
	}
	if name := classOf(claim); name != "" {
		v.Class, _ = reconcile.Get(s, kinds.StorageClasses, "", name)
	}
	if late, _ := v.late(); late && !has(claim, selectedNode) {
		v.Waiting = waiting(s, claim)
	}
}

// mostOffered bounds the volumes in a claim's view. The claim takes the best one. With thousands of
// free volumes, all of them would make up most of the cost of as many claims' turns.
const mostOffered = 4

// offers are the best candidates of a claim, in the order in which they were added.
type offers struct {
	best  []candidate
	worst int // index of the worst of them
}

// add adds a candidate, and drops the worst if there are too many.
func (o *offers) add(c candidate) {
	if len(o.best) == mostOffered {
		if !c.before(o.best[o.worst]) {
			return
		}
		o.best = slices.Delete(o.best, o.worst, o.worst+1)
	}
	o.best, o.worst = append(o.best, c), 0
	for i, other := range o.best {
		if o.best[o.worst].before(other) {
			o.worst = i
		}
	}
}

// defaultClass is the name of the newest StorageClass that is marked as default.
//
// Upstream: pkg/volume/util, GetDefaultClass.
func defaultClass(s reconcile.Snapshot) string {
	classes := slices.DeleteFunc(reconcile.List(s, kinds.StorageClasses, ""), func(c *storagev1.StorageClass) bool { return !isDefault(c) })
	if len(classes) == 0 {
		return ""
	}
	return slices.MinFunc(classes, func(a, b *storagev1.StorageClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}).Name
}

func isDefault(c *storagev1.StorageClass) bool {
	return c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" || c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// waiting are the names of the pods that refer to a claim, have not ended, and have no node.
//
// Upstream: findNonScheduledPodsByPVC.
func waiting(s reconcile.Snapshot, claim *corev1.PersistentVolumeClaim) (names []string) {
	for _, p := range reconcile.List(s, kinds.Pods, claim.Namespace) {
		if waits(p) && slices.Contains(claimsOf(p), claim.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// waits reports whether a pod has no node and may still get one.
func waits(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !pod.Terminal(p)
}

// claimsOf are the names of the claims that a pod refers to.
func claimsOf(p *corev1.Pod) (names []string) {
	for i := range p.Spec.Volumes {
		if name, _ := query.ClaimOf(p, &p.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func observeVolume(s reconcile.Snapshot, k events.Key) (View, bool) {
	volume, ok := reconcile.Get(s, kinds.PersistentVolumes, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Volume: volume}
	if ref := volume.Spec.ClaimRef; ref != nil && ref.UID != "" {
		v.Holder, _ = reconcile.Get(s, kinds.PersistentVolumeClaims, ref.Namespace, ref.Name)
	}
	if last, ok := reconcile.Answers(s, k, volume); ok {
		v.hear(last, kinds.PersistentVolumeClaims.Kind)
	}
	v.recall(s, k)
	return v, true
}

// hear reads an answer about an object of a kind.
func (v *View) hear(last events.Outcome, kind kinds.Kind) {
	for _, r := range last.Results {
		if r.Ref.Kind != kind.Name {
			continue
		}
		switch r.Status {
		case events.Absent:
			v.Live = &Live{At: last.At}
		case events.Answered:
			claim, err := claimIn(r, kind)
			if err != nil {
				v.Unread = &reconcile.Unread{Because: err.Error(), At: last.At}
				continue
			}
			claim.At = last.At
			v.Live = claim
		default:
		}
	}
}

// claimIn returns the claim in an answer, or the claim to which the volume in it is bound.
func claimIn(r events.Result, kind kinds.Kind) (*Live, error) {
	if kind.Name == kinds.PersistentVolumeClaims.Name {
		var claim corev1.PersistentVolumeClaim
		err := reconcile.ReadObject(r, kind.Kind, &claim)
		return &Live{There: true, Claim: claim.UID}, err
	}
	var volume corev1.PersistentVolume
	err := reconcile.ReadObject(r, kind.Kind, &volume)
	live := &Live{There: true}
	if volume.Spec.ClaimRef != nil {
		live.Claim = volume.Spec.ClaimRef.UID
	}
	return live, err
}

// recall reads the Events of the last report.
func (v *View) recall(s reconcile.Snapshot, k events.Key) {
	last, ok := reconcile.LastOf(s, k, events.LaneStatus, v.own())
	if !ok {
		return
	}
	for _, r := range last.Results {
		var n told
		if r.OK() && r.Answer != nil && json.Unmarshal(r.Answer.Note, &n) == nil && n.Told != "" {
			v.Told, v.ToldAt = append(v.Told, n.Told), last.At
		}
	}
}
