package storage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

// Labels is what users do with pods that share volumes with SELinux labels, and what
// administrators do with volumes and their driver.
var Labels = []cluster.Operation{
	labelledPod, labelledPod, labelledPod, labelledPod, labelledPod, cluster.DeletePod, cluster.DeletePod, nodes.FinishPod,
	ShareVolume, ShareVolume, ShareVolume, dropShared, MountsLabels, MountsLabels,
}

// The reasons of Events about such pods.
const (
	warnsOfLabels   = "SELinuxLabelConflict"
	warnsOfPolicies = "SELinuxChangePolicyConflict"
	warnsOfTwo      = "MultipleSELinuxLabels"
)

var driverRef = events.Ref{Kind: kinds.CSIDrivers.Name, Name: Driver}

// labelledPod creates a pod that wants its volume mounted with a label, has no label, or has
// its volume relabelled. Some pods have a second container, which may want another label.
func labelledPod(w *cluster.Cluster) {
	name, claim, relabels := fmt.Sprint("user", w.Roll(4)), fmt.Sprint("shared", w.Roll(2)), w.Roll(4) == 0
	var levels []string
	for range 1 + w.Roll(4)/3 {
		levels = append(levels, []string{"", "s0:c1", "s0:c1", "s0:c2"}[w.Roll(4)])
	}
	WantsLabels(w, name, claim, relabels, levels...)
}

// WantsLabels creates a pod with a container for each level; an empty level means no label.
func WantsLabels(w *cluster.Cluster, name, claim string, relabels bool, levels ...string) {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: name}
	if w.API.Get(ref) != nil {
		return
	}
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	pod.Spec.Volumes = []corev1.Volume{{Name: own, VolumeSource: source}}
	for i, level := range levels {
		c := corev1.Container{Name: fmt.Sprint("main", i), VolumeMounts: []corev1.VolumeMount{{Name: own, MountPath: "/own"}}}
		if level != "" {
			c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	if relabels {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxChangePolicy: new(corev1.SELinuxChangePolicyRecursive)}
	}
	w.Note("user: create %v with %s, labels %q, relabelled %v", ref, claim, levels, relabels)
	w.Create(ref, pod)
}

// ShareVolume creates a claim and a volume that are bound to each other.
func ShareVolume(w *cluster.Cluster) {
	n := w.Roll(2)
	ref, at := ClaimRefOf(fmt.Sprint("shared", n)), VolumeRef(fmt.Sprint("pv", n))
	if w.API.Get(ref) != nil || w.API.Get(at) != nil {
		return
	}
	w.Note("user: claim %s, which has %s", ref.Name, at.Name)
	w.Create(ref, &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: at.Name},
	})
	pv := Volume(at.Name, Driver, []string{at.Name, "same"}[w.Roll(3)/2], 1) // both may be the same volume
	pv.Finalizers = nil
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: cluster.Namespace, Name: ref.Name, UID: w.API.Get(ref).GetUID()}
	w.Create(at, pv)
	w.API.Change(ref, func(obj metav1.Object) { obj.(*corev1.PersistentVolumeClaim).Status.Phase = corev1.ClaimBound })
}

// dropShared deletes a claim, its volume, or both.
func dropShared(w *cluster.Cluster) {
	n, what := w.Roll(2), w.Roll(3)
	for i, ref := range []events.Ref{ClaimRefOf(fmt.Sprint("shared", n)), VolumeRef(fmt.Sprint("pv", n))} {
		if i != what && w.API.Get(ref) != nil {
			w.Delete(ref, metav1.DeletePropagationBackground)
		}
	}
}

// MountsLabels makes the driver mount volumes with labels from now on, or takes that back.
func MountsLabels(w *cluster.Cluster) {
	if w.API.Get(driverRef) == nil {
		w.Note("administrator: create %v", driverRef)
		w.Create(driverRef, &storagev1.CSIDriver{
			TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"}, ObjectMeta: metav1.ObjectMeta{Name: Driver},
			Spec: storagev1.CSIDriverSpec{SELinuxMount: new(true)},
		})
		return
	}
	w.Note("administrator: volumes of %s are mounted with labels, or are not any more", Driver)
	w.API.Change(driverRef, func(obj metav1.Object) {
		s := &obj.(*storagev1.CSIDriver).Spec
		s.SELinuxMount = new(!*s.SELinuxMount)
	})
}

// labelled lists the objects by which pods conflict: the existing ones, or those in the view of
// a turn.
type labelled func(kinds.Name) []metav1.Object

// mounts reports whether volumes of the driver are mounted with labels.
func (l labelled) mounts() bool {
	return slices.ContainsFunc(l(kinds.CSIDrivers.Name), func(obj metav1.Object) bool { return *obj.(*storagev1.CSIDriver).Spec.SELinuxMount })
}

// volumeOf is the volume of a pod: the one that is bound to its claim, in both directions.
func (l labelled) volumeOf(pod *corev1.Pod) (name corev1.UniqueVolumeName) {
	for _, obj := range l(kinds.PersistentVolumeClaims.Name) {
		c := obj.(*corev1.PersistentVolumeClaim)
		if c.Name != pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName || c.Status.Phase != corev1.ClaimBound {
			continue
		}
		for _, obj := range l(kinds.PersistentVolumes.Name) {
			if pv := obj.(*corev1.PersistentVolume); pv.Name == c.Spec.VolumeName && pv.Spec.ClaimRef.UID == c.UID {
				v, _ := csi.VolumeOf(pv)
				name = v.Name()
			}
		}
	}
	return name
}

// levelsOf are the distinct labels that the containers of a pod want.
func levelsOf(pod *corev1.Pod) (all []string) {
	for _, c := range pod.Spec.Containers {
		if c.SecurityContext != nil {
			all = append(all, c.SecurityContext.SELinuxOptions.Level)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// wish is the label with which a pod wants its volume mounted; empty if the kubelet relabels
// the volume file by file. A pod with several labels has none.
func (l labelled) wish(pod *corev1.Pod) (label string, ok bool) {
	all := levelsOf(pod)
	relabels := pod.Spec.SecurityContext != nil || !l.mounts()
	switch {
	case len(all) > 1:
		return "", false
	case len(all) == 0 || relabels:
		return "", true
	default:
		return all[0], true
	}
}

// conflicts are the reasons why two pods cannot use their volume on one node.
func (l labelled) conflicts(a, b *corev1.Pod) (reasons []string) {
	x, fine := l.wish(a)
	y, alsoFine := l.wish(b)
	shared := l.volumeOf(a) != "" && l.volumeOf(a) == l.volumeOf(b)
	if a.UID == b.UID || done(a) || done(b) || !fine || !alsoFine || !shared || x == y {
		return nil
	}
	if reasons = []string{warnsOfLabels}; x == "" || y == "" {
		reasons = append(reasons, warnsOfPolicies)
	}
	return reasons
}

// done reports whether a pod has ended.
func done(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func warningIn(n events.Notice) cluster.Warning {
	_, rest, _ := strings.Cut(n.Message, " conflicts with pod ")
	other, _, _ := strings.Cut(rest, " ")
	return cluster.Warning{Pod: n.About.UID, Reason: n.Reason, Other: other}
}

// WarningsJudged judges the warnings of a turn: the view has such a conflict (W1).
func WarningsJudged(l *cluster.Look, f cluster.Findings) {
	shown := labelled(l.List)
	for _, c := range l.Reports {
		if c.OnApplied == nil {
			continue // it notes something, and tells no pod
		}
		told := warningIn(*c.OnApplied)
		find := func(is func(*corev1.Pod) bool) *corev1.Pod {
			for _, obj := range shown(kinds.Pods.Name) {
				if pod := obj.(*corev1.Pod); is(pod) {
					return pod
				}
			}
			return nil
		}
		pod, other := find(func(p *corev1.Pod) bool { return p.UID == told.Pod }), find(func(p *corev1.Pod) bool { return p.Name == told.Other })
		switch {
		case pod == nil:
			f.Breaks("W1", "warns the pod %s, which is not there", told.Pod)
		case told.Reason == warnsOfTwo:
			if len(levelsOf(pod)) < 2 {
				f.Breaks("W1", "says that %s wants several labels, and it wants %v", pod.Name, levelsOf(pod))
			}
		case other == nil || !slices.Contains(shown.conflicts(pod, other), told.Reason):
			f.Breaks("W1", "warns %s of %q (%s), and they do not conflict so", pod.Name, told.Other, told.Reason)
		}
	}
}

// Tells records the Events of a turn as it ends. In a world without faults no pod gets a warning again
// while nothing changes and no earlier object comes into view (W2).
func Tells(g *cluster.Guard, turn events.Turn, all []plan.Event) {
	for _, t := range all {
		if t.Reason != warnsOfLabels && t.Reason != warnsOfPolicies && t.Reason != warnsOfTwo {
			continue
		}
		at := warningIn(t.Notice)
		if last, ever := g.Storage.Warned[at]; ever && last.Changes == g.Record.Changes && maps.Equal(last.Seen, turn.Seen) && g.World.Settings.Faults == 0 && !g.World.Settings.Blown {
			g.Breaks("W2", "%s (%s) is told again: %s", t.About.Name, at.Pod, t.Message)
		}
		g.Storage.Warned[at] = cluster.Warned{Changes: g.Record.Changes, Seen: turn.Seen}
	}
}

// WarnedOfConflicts reports whether all conflicting pods were warned, each about the other one.
func WarnedOfConflicts(w *cluster.Cluster) error {
	if !w.Runs("selinux-warning-controller") {
		return nil
	}
	there, pods := labelled(w.API.List), w.API.List(kinds.Pods.Name)
	for _, obj := range pods {
		pod := obj.(*corev1.Pod)
		if !done(pod) && len(levelsOf(pod)) > 1 && there.volumeOf(pod) != "" && !wasTold(w.Guard, cluster.Warning{Pod: pod.UID, Reason: warnsOfTwo}) {
			return fmt.Errorf("%s wants several labels, and was not told so", pod.Name)
		}
		for _, other := range pods {
			for _, reason := range there.conflicts(pod, other.(*corev1.Pod)) {
				if !wasTold(w.Guard, cluster.Warning{Pod: pod.UID, Reason: reason, Other: other.GetName()}) {
					return fmt.Errorf("%s was not told of %s: %s", pod.Name, other.GetName(), reason)
				}
			}
		}
	}
	return nil
}

func wasTold(g *cluster.Guard, of cluster.Warning) bool {
	_, told := g.Storage.Warned[of]
	return told
}
