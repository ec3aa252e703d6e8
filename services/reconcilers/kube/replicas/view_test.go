package replicas

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// anyView is what a set may see at the worst of times.
func anyView(t *rapid.T) View {
	set := reconciletest.ReplicaSet("web", int32(rapid.IntRange(0, 6).Draw(t, "replicas")))
	set.Spec.MinReadySeconds = rapid.SampledFrom([]int32{0, 0, 10, 3600}).Draw(t, "minReadySeconds")
	set.Status.Replicas = int32(rapid.IntRange(0, 6).Draw(t, "replicas in status"))
	set.Status.ObservedGeneration = int64(rapid.IntRange(0, 1).Draw(t, "observed generation"))
	if rapid.IntRange(0, 5).Draw(t, "deleted") == 5 {
		reconciletest.Deleted[*appsv1.ReplicaSet](now)(set)
	}
	if rapid.Bool().Draw(t, "told of failure") {
		set.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue}}
	}
	v := View{Set: set, Failure: anyFailure(t)}
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		v.Pods = append(v.Pods, anyPod(t, fmt.Sprintf("web-%05d", i), set))
	}
	if rapid.Bool().Draw(t, "named like a create") && len(v.Pods) > 0 {
		v.Pods[0].Name = names.Derived(set, 0, 1, func(string) bool { return false })[0]
	}
	if rapid.Bool().Draw(t, "crowd") {
		v.Crowd = pod.Crowd{"n1": rapid.IntRange(0, 3).Draw(t, "on n1"), "n2": 1}
	}
	if rapid.Bool().Draw(t, "reported") { // so that nothing but the wake is left at times
		for range 4 {
			v = applied(v, decide(v, now), now)
		}
	}
	return v
}

func anyPod(t *rapid.T, name string, set *appsv1.ReplicaSet) *corev1.Pod {
	p := reconciletest.Pod(name)
	p.UID = types.UID(rapid.StringMatching(`[0-9a-f]{6}`).Draw(t, "uid"))
	p.Spec.NodeName = rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Running", "Unknown", "Failed", "Succeeded"}).Draw(t, "phase")
	p.CreationTimestamp = metav1.NewTime(now.Add(-anyAge(t)))
	if rapid.IntRange(0, 3).Draw(t, "orphan") > 0 {
		of(set)(p)
	}
	if rapid.IntRange(0, 5).Draw(t, "other labels") == 5 {
		labelled("other")(p)
	}
	if rapid.IntRange(0, 5).Draw(t, "deleted") == 5 {
		reconciletest.Deleted[*corev1.Pod](now)(p)
	}
	if rapid.Bool().Draw(t, "ready") {
		reconciletest.ReadySince(now.Add(-anyAge(t)))(p)
	}
	return p
}

func anyAge(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(0, 7200).Draw(t, "age in seconds")) * time.Second
}

func anyFailure(t *rapid.T) *Failure {
	if rapid.Bool().Draw(t, "nothing failed") {
		return nil
	}
	name := rapid.SampledFrom([]string{"web-bcdfg", "web-00000"}).Draw(t, "failed")
	return &Failure{
		Attempt: uint64(rapid.IntRange(1, 9).Draw(t, "attempt")),
		Result: events.Result{
			Status:  rapid.SampledFrom([]events.Status{events.Conflict, events.Refused, events.Failed, events.Absent}).Draw(t, "fate"),
			Ref:     events.Ref{Kind: kinds.Pods.Name, Namespace: reconciletest.Namespace, Name: name},
			Code:    rapid.SampledFrom([]int{0, 403, 404}).Draw(t, "code"),
			Message: "no",
		},
	}
}

func shuffled(t *rapid.T, v View) View {
	v.Pods = rapid.Permutation(v.Pods).Draw(t, "order")
	return v
}

// applied is what the view is after every command succeeded.
func applied(v View, d reconcile.Decision, now time.Time) View {
	v.Pods = slices.Clone(v.Pods)
	for _, c := range d.Commands {
		if c.Lane() == events.LaneWrite {
			v.Failure = nil
		}
		at := slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == c.Name })
		switch c.Verb {
		case events.VerbCreate:
			created := read[corev1.Pod](c.Body)
			created.Namespace, created.Name, created.UID = c.Namespace, c.Name, types.UID("uid-"+c.Name)
			created.CreationTimestamp = metav1.NewTime(now)
			v.Pods = append(v.Pods, created)
		case events.VerbDelete:
			v.Pods = slices.Delete(v.Pods, at, at+1)
		case events.VerbPatch:
			if len(v.Pods[at].OwnerReferences) > 0 {
				v.Pods = slices.Delete(v.Pods, at, at+1) // released: out of sight
				continue
			}
			adopted := v.Pods[at].DeepCopy()
			of(v.Set)(adopted)
			v.Pods[at] = adopted
		case events.VerbUpdate:
			v.Set = read[appsv1.ReplicaSet](c.Body)
		}
	}
	return v
}

func read[T any](body json.RawMessage) *T {
	var value T
	if err := json.Unmarshal(body, &value); err != nil {
		panic(err)
	}
	return &value
}
