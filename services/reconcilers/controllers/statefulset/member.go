package statefulset

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// wanted is how many pods the set wants. The API server sets a missing number to 1.
func (v View) wanted() int {
	if v.Set.Spec.Replicas == nil {
		return 1
	}
	return int(*v.Set.Spec.Replicas)
}

// start is the lowest ordinal.
func (v View) start() int {
	if v.Set.Spec.Ordinals == nil {
		return 0
	}
	return int(v.Set.Spec.Ordinals.Start)
}

// partition is the position below which pods stay at the current revision.
func (v View) partition() int {
	if r := v.Set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// atOnce is true for a set with parallel pod management.
func (v View) atOnce() bool { return v.Set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement }

// ordinal is the ordinal of a pod, or -1 if its name has none.
func (v View) ordinal(p *corev1.Pod) int {
	text, ok := strings.CutPrefix(p.Name, v.Set.Name+"-")
	number, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil || number < 0 || strconv.FormatInt(number, 10) != text {
		return -1
	}
	return int(number)
}

func (v View) name(ordinal int) string { return v.Set.Name + "-" + strconv.Itoa(ordinal) }

// occupied reports whether a pod that is not the set's has a name: a pod of another owner,
// or an orphan that is being deleted and therefore not adopted.
func (s stage) occupied(name string) bool {
	return slices.Contains(s.Squatters, name) || slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool { return p.Name == name })
}

// members are the pods with a name of the set's, sorted by name.
func (v View) members() []*corev1.Pod {
	var members []*corev1.Pod
	for _, p := range v.Pods {
		if v.ordinal(p) >= 0 {
			members = append(members, p)
		}
	}
	slices.SortStableFunc(members, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return members
}

// releases remove the set's owner reference from pods that do not have a name of the
// set's.
func (v View) releases() []events.Command {
	var commands []events.Command
	for _, p := range v.Pods {
		if v.ordinal(p) < 0 && owner.Controls(v.Set, p) && v.Set.DeletionTimestamp == nil {
			commands = append(commands, owner.Release(kinds.Pods.Kind, p, v.Set.UID))
		}
	}
	slices.SortStableFunc(commands, func(a, b events.Command) int { return cmp.Compare(a.Name, b.Name) })
	return commands
}

// running is true for a pod that runs and is ready.
func running(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && pod.Ready(p) }

func (s stage) available(p *corev1.Pod) bool {
	return pod.Available(p, s.Set.Spec.MinReadySeconds, s.now)
}

func (s stage) unavailable(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || !s.available(p) }

// divided is true for a set that may create pods of the current revision. Only the status
// says which revision that is, and, where the set has no partition, below which ordinal
// it applies, as before the API server filled in a partition.
func (v View) divided() bool {
	strategy := v.Set.Spec.UpdateStrategy
	return strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && (strategy.RollingUpdate == nil || v.partition() > 0)
}

// create creates the pod with an ordinal, from the revision that the pod is to have.
//
// Upstream: pkg/controller/statefulset, newVersionedStatefulSetPod.
func (s stage) create(ordinal int) events.Command {
	revision := s.update
	if s.divided() {
		below := s.start() + s.partition()
		if s.Set.Spec.UpdateStrategy.RollingUpdate == nil {
			below = s.start() + int(s.Set.Status.CurrentReplicas)
		}
		if ordinal < below {
			revision = s.current
		}
	}
	t := s.template(revision)
	created := template.Object(t, kinds.StatefulSets.Kind, s.Set)
	name := s.name(ordinal)
	created.Labels = label.With(label.With(label.With(t.Labels,
		appsv1.StatefulSetPodNameLabel, name), appsv1.PodIndexLabel, strconv.Itoa(ordinal)), appsv1.StatefulSetRevisionLabel, revision.Name)
	created.Spec.Hostname, created.Spec.Subdomain = name, s.Set.Spec.ServiceName
	created.Spec.Volumes = s.volumes(ordinal, t.Spec.Volumes)
	return reconcile.Create(kinds.Pods.Kind, s.Set.Namespace, name, reconcile.Body(created), s.tell("Create"))
}

func (s stage) deletion(p *corev1.Pod) events.Command {
	return reconcile.Delete(kinds.Pods.Kind, p, s.tell("Delete"))
}

// rename corrects the labels that identify the pod.
func (s stage) rename(p *corev1.Pod) events.Command {
	patch := map[string]any{"metadata": map[string]any{"uid": p.UID, "labels": map[string]string{
		appsv1.StatefulSetPodNameLabel: p.Name, appsv1.PodIndexLabel: strconv.Itoa(s.ordinal(p)),
	}}}
	return reconcile.Patch(kinds.Pods.Kind, p, types.StrategicMergePatchType, reconcile.Body(patch), s.tell("Update"))
}

// tell sets the Events about the set that report the result for a pod.
func (s stage) tell(verb string) reconcile.Option {
	of := verb + " Pod {name} in StatefulSet " + s.Set.Name
	return reconcile.WithEvents(
		s.notice(corev1.EventTypeNormal, "Successful"+verb, of+" successful"),
		s.notice(corev1.EventTypeWarning, "Failed"+verb, of+" failed error: {error}"),
	)
}

func (v View) notice(level, reason, message string) *events.Notice {
	return &events.Notice{About: reconcile.About(kinds.StatefulSets.Kind, v.Set), Type: level, Reason: reason, Message: message}
}
