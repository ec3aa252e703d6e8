package disruption

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// fresh is how long an answer stays valid although the pods have changed: while many pods
// come and go, the controller does not ask for each of them.
const fresh = time.Second

// sizeOf returns how many pods an owner of a watched kind wants.
func sizeOf(obj metav1.Object) (int32, bool) {
	var replicas *int32
	switch o := obj.(type) {
	case *corev1.ReplicationController:
		replicas = o.Spec.Replicas
	case *appsv1.ReplicaSet:
		replicas = o.Spec.Replicas
	case *appsv1.Deployment:
		replicas = o.Spec.Replicas
	case *appsv1.StatefulSet:
		replicas = o.Spec.Replicas
	}
	if replicas == nil {
		return 0, false
	}
	return *replicas, true
}

// inApps returns a reference with the group extensions replaced by apps.
//
// Upstream: verifyGroupKind takes both for ReplicaSets and Deployments.
func inApps(ref metav1.OwnerReference) metav1.OwnerReference {
	if version, old := strings.CutPrefix(ref.APIVersion, "extensions/"); old {
		ref.APIVersion = "apps/" + version
	}
	return ref
}

// readable reports whether a reference is to an owner of a watched kind.
func readable(ref metav1.OwnerReference) bool {
	version, err := schema.ParseGroupVersion(inApps(ref).APIVersion)
	return err == nil && slices.ContainsFunc([]kinds.Kind{
		kinds.ReplicationControllers.Kind, kinds.ReplicaSets.Kind, kinds.StatefulSets.Kind,
	}, func(k kinds.Kind) bool { return k.Kind == ref.Kind && k.Name.Group() == version.Group })
}

// scales is what is known about the expected number of pods.
type scales struct {
	expected  int32
	unmanaged []string // pods without a controller
	failure   string   // why expected is not known
	// ask are the questions to ask first, if answers are lacking. stale is when the
	// oldest answer that is used although the pods have changed must be asked for again.
	ask     []events.Command
	lacking bool
	stale   time.Time
}

// scales adds up the sizes of the pods' controllers, each once.
//
// Upstream: getExpectedScale.
func (v View) scales(now time.Time) scales {
	var all scales
	counted, asked, occasion := map[types.UID]bool{}, map[types.UID]bool{}, v.occasion()
	var questions []events.Command
	for _, p := range v.Pods {
		ref, ok := owner.Of(p)
		switch {
		case !ok:
			all.unmanaged = append(all.unmanaged, p.Name)
			continue
		case asked[ref.UID]:
			continue
		}
		size, known := v.Sizes[ref.UID]
		if !known && !readable(ref) {
			asked[ref.UID] = true
			questions = append(questions, v.question(ref, occasion))
			if !v.answered(ref, occasion, now, &all) {
				continue
			}
			answer := v.Answers[ref.UID]
			if answer.Failure != "" {
				all.fail(answer.Failure)
				continue
			}
			size, known = Size{Of: answer.UID, Replicas: answer.Replicas}, answer.UID == ref.UID
		}
		if !known {
			all.fail(fmt.Sprintf("found no controllers for pod %q", p.Name))
			continue
		}
		if !counted[size.Of] {
			counted[size.Of] = true
			all.expected += size.Replicas
		}
	}
	if all.lacking { // the memory keeps only the last turn's answers, so all are asked for together
		all.ask = questions
	}
	return all
}

func (s *scales) fail(why string) {
	if s.failure == "" {
		s.failure = why
	}
}

// answered reports whether there is a valid answer about an owner; otherwise it sets
// lacking. That a kind has no scale is a valid answer until the pods change.
//
// Upstream: asked for at each change of a pod, and not again where that fails.
func (v View) answered(ref metav1.OwnerReference, occasion string, now time.Time, all *scales) bool {
	answer, known := v.Answers[ref.UID]
	until := answer.At.Add(fresh)
	switch {
	case known && answer.Note.Occasion == occasion && (answer.Failure == "" || answer.Lacking):
		return true
	case known && now.Before(until):
		if all.stale.IsZero() || until.Before(all.stale) {
			all.stale = until
		}
		return true
	}
	all.lacking = true
	return false
}

func (v View) question(ref metav1.OwnerReference, occasion string) events.Command {
	of := metav1.OwnerReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
	return reconcile.AskOf(v.Budget.Namespace, of, scale, Note{UID: ref.UID, Occasion: occasion})
}

// occasion returns a hash of the budget's generation and of its pods.
func (v View) occasion() string {
	sum := fnv.New64a()
	fmt.Fprintln(sum, v.Budget.Generation)
	for _, p := range v.Pods {
		fmt.Fprintln(sum, p.UID, p.DeletionTimestamp != nil)
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}
