package selinuxwarning

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/claim"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	if k.Namespace != "" {
		return observePod(s, k)
	}
	v := View{Name: k.Name}
	byClaim(s, k, &v)
	if inline(k) {
		byName(s, k, &v)
	}
	if last, ok := reconcile.LastOfAny(s, k, events.LaneStatus); ok {
		v.Known = noted(last).Known
	}
	return v, len(v.Uses) > 0
}

func observePod(s reconcile.Snapshot, k events.Key) (View, bool) {
	p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Pod: p}
	for i := range p.Spec.Volumes {
		if _, known := behind(s, p, &p.Spec.Volumes[i]); known {
			v.Found = append(v.Found, p.Spec.Volumes[i].Name)
		}
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, p); ok {
		v.Told = noted(last).Volumes
	}
	return v, true
}

// noted returns the note of the last report.
func noted(last events.Outcome) (n note) {
	for _, r := range last.Results {
		if r.Answer != nil && len(r.Answer.Note) > 0 && json.Unmarshal(r.Answer.Note, &n) == nil {
			return n
		}
	}
	return note{}
}

// byClaim finds the pods that use the volume through bound claims.
func byClaim(s reconcile.Snapshot, k events.Key, v *View) {
	for _, pv := range reconcile.List(s, kinds.PersistentVolumes, "") {
		of, ok := volumeOf(pv)
		if !ok || !of.is(k) {
			continue
		}
		by := claim.Of(s, pv)
		if by == nil {
			continue
		}
		v.Mounts = of.mounts(s)
		for _, p := range reconcile.List(s, kinds.Pods, by.Namespace) {
			v.use(p, func(in *corev1.Volume) bool { return claim.Used(p, in, by) })
		}
	}
}

// byName finds the pods that name the volume themselves.
func byName(s reconcile.Snapshot, k events.Key, v *View) {
	for _, p := range reconcile.List(s, kinds.Pods, "") {
		v.use(p, func(in *corev1.Volume) bool {
			if name, _ := query.ClaimOf(p, in); name != "" {
				return false
			}
			of, ok := named(in, p.Namespace)
			if !ok || !of.is(k) {
				return false
			}
			v.Mounts = of.mounts(s)
			return true
		})
	}
}

// use adds a pod with those of its volumes that are the one whose turn it is. It skips a pod that
// has ended, because the node releases its volumes.
func (v *View) use(p *corev1.Pod, is func(*corev1.Volume) bool) {
	if pod.Terminal(p) {
		return
	}
	for i := range p.Spec.Volumes {
		if in := &p.Spec.Volumes[i]; is(in) && mountedBy(p, in.Name) {
			v.add(p, in.Name)
		}
	}
}

func (v *View) add(p *corev1.Pod, volume string) {
	for i := range v.Uses {
		if v.Uses[i].Pod == p {
			v.Uses[i].Volumes = append(v.Uses[i].Volumes, volume)
			return
		}
	}
	v.Uses = append(v.Uses, Use{Pod: p, Volumes: []string{volume}})
}
