package deployment

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// carryOut returns the view after a decision, as a toy API server with one Deployment
// would. It does not modify its argument.
func carryOut(v View, d reconcile.Decision, now time.Time) View {
	v.Deployment, v.Failure = v.Deployment.DeepCopy(), nil
	sets := make([]*appsv1.ReplicaSet, 0, len(v.Sets))
	for _, s := range v.Sets {
		sets = append(sets, s.DeepCopy())
	}
	v.Sets = sets
	for _, c := range d.Commands {
		if c.Kind == kinds.Deployments.Name {
			v.Deployment = deploymentAfter(v.Deployment, c)
			continue
		}
		v.Sets = setsAfter(v, c, now)
	}
	return v
}

func deploymentAfter(had *appsv1.Deployment, c events.Command) *appsv1.Deployment {
	next := &appsv1.Deployment{}
	read(c.Body, next)
	if c.If.ResourceVersion != had.ResourceVersion {
		panic("two writes of one version of the Deployment")
	}
	if c.Subresource == "status" {
		next.Spec, next.Generation = had.Spec, had.Generation
	} else {
		next.Status = had.Status
		if !equality.Semantic.DeepEqual(next.Spec, had.Spec) {
			next.Generation++
		}
	}
	next.ResourceVersion = later(had)
	return next
}

func setsAfter(v View, c events.Command, now time.Time) []*appsv1.ReplicaSet {
	if c.Verb == events.VerbCreate {
		created := &appsv1.ReplicaSet{}
		read(c.Body, created)
		created.UID, created.ResourceVersion, created.Generation = types.UID("created-"+c.Name), "1", 1
		created.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second))
		return append(v.Sets, created)
	}
	at := slices.IndexFunc(v.Sets, func(s *appsv1.ReplicaSet) bool { return s.UID == c.If.UID })
	had := v.Sets[at]
	switch c.Verb {
	case events.VerbDelete:
		return slices.Delete(v.Sets, at, at+1)
	case events.VerbPatch:
		had.OwnerReferences = nil
		if !strings.Contains(string(c.Body), "$patch") {
			had.OwnerReferences = []metav1.OwnerReference{owner.Reference(kinds.Deployments.Kind, v.Deployment)}
		}
		had.ResourceVersion = later(had)
	default:
		if c.If.ResourceVersion != had.ResourceVersion {
			panic("two writes of one version of a set")
		}
		next := &appsv1.ReplicaSet{}
		read(c.Body, next)
		if !equality.Semantic.DeepEqual(next.Spec, had.Spec) {
			next.Generation++
		}
		next.ResourceVersion, v.Sets[at] = later(had), next
	}
	return v.Sets
}

// live gives each set the pods that it asks for, of which at most quick become available at a time.
func live(v View, quick int32) View {
	v.Running = nil
	sets := make([]*appsv1.ReplicaSet, 0, len(v.Sets))
	for _, s := range v.Sets {
		next := *s
		size := sizeOf(s)
		ready := min(size, s.Status.AvailableReplicas+quick)
		next.Status.Replicas, next.Status.FullyLabeledReplicas = size, size
		next.Status.ReadyReplicas, next.Status.AvailableReplicas = ready, ready
		next.Status.ObservedGeneration, next.Status.TerminatingReplicas = s.Generation, new(int32)
		next.Status.Conditions = nil
		sets = append(sets, &next)
	}
	v.Sets = sets
	return v
}

// atOnce carries out a decision, and makes every pod exist and ready.
func atOnce(v View, d reconcile.Decision, now time.Time) View {
	return live(carryOut(v, d, now), 1000)
}

func read(body json.RawMessage, into any) {
	if err := json.Unmarshal(body, into); err != nil {
		panic(err)
	}
}

func later(obj metav1.Object) string {
	version, err := strconv.Atoi(obj.GetResourceVersion())
	if err != nil {
		panic(err)
	}
	return strconv.Itoa(version + 1)
}
