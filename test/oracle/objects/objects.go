package objects

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/millrace/millrace/test/oracle/effect"
)

// Now is the time of every question. A bubble's time begins half a second before; the API has whole seconds
// only, so every time in a world differs from Now by at least half a second.
var Now = time.Date(2000, time.January, 1, 0, 0, 0, int(500*time.Millisecond), time.UTC)

// Copied is a deep copy of a world.
func Copied(world []runtime.Object) []runtime.Object {
	out := make([]runtime.Object, len(world))
	for i, obj := range world {
		out[i] = obj.DeepCopyObject()
	}
	return out
}

// NameOf is the name of an object; "" if it has no metadata.
func NameOf(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return m.GetName()
}

// Object is an object of a world.
type Object interface {
	runtime.Object
	metav1.Object
}

// After is a world after effects, carried out as an API server would. Events are not part of a world.
func After(world []runtime.Object, effects []effect.Effect, now time.Time) ([]runtime.Object, error) {
	world = Copied(world)
	for _, e := range effects {
		if e.Verb == effect.Event {
			continue
		}
		var err error
		if world, err = carryOut(world, e, now); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Head(), err)
		}
	}
	return world, nil
}

func carryOut(world []runtime.Object, e effect.Effect, now time.Time) ([]runtime.Object, error) {
	resource, subresource, _ := strings.Cut(e.Resource, "/")
	at := slices.IndexFunc(world, func(o runtime.Object) bool {
		m, ok := o.(Object)
		return ok && ResourceOf(o) == resource && m.GetName() == e.Name
	})
	if e.Verb == effect.Create {
		return added(world, resource, e, now)
	}
	if at < 0 {
		return nil, fmt.Errorf("there is no such object")
	}
	was := world[at].(Object)
	var next Object
	var err error
	switch e.Verb {
	case effect.Remove:
		return slices.Delete(world, at, at+1), nil
	case effect.Patch:
		next, err = merged(was, e.Body)
	case effect.Update:
		next, err = replaced(was, subresource, e.Body)
	default:
		err = fmt.Errorf("the verb %q is unknown", e.Verb)
	}
	if err != nil {
		return nil, err
	}
	next.SetResourceVersion(Newer(was.GetResourceVersion()))
	world[at] = next
	return world, nil
}

func added(world []runtime.Object, resource string, e effect.Effect, now time.Time) ([]runtime.Object, error) {
	obj, err := Decoded(resource, e.Body)
	if err != nil {
		return nil, err
	}
	if obj.GetName() == "" {
		obj.SetName(fmt.Sprintf("%s%05d", obj.GetGenerateName(), len(world)))
	}
	obj.SetUID(types.UID("uid-" + obj.GetName()))
	obj.SetResourceVersion("1")
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(now.Truncate(time.Second)))
	return append(world, obj), nil
}

// merged is an object with a patch; the patch type precedes the patch.
func merged(was Object, typed string) (Object, error) {
	how, body, _ := strings.Cut(typed, " ")
	if how != string(types.StrategicMergePatchType) {
		return nil, fmt.Errorf("patches of type %s are not carried out here", how)
	}
	revision, holds := was.DeepCopyObject().(*appsv1.ControllerRevision)
	var data runtime.RawExtension
	if holds { // merge directives; this patch has none
		data, revision.Data = revision.Data, data
		was = revision
	}
	text, err := json.Marshal(was)
	if err != nil {
		return nil, fmt.Errorf("write the object: %w", err)
	}
	if text, err = strategicpatch.StrategicMergePatch(text, []byte(body), was); err != nil {
		return nil, fmt.Errorf("merge the patch: %w", err)
	}
	next, err := Decoded(ResourceOf(was), string(text))
	if err == nil && holds {
		next.(*appsv1.ControllerRevision).Data = data
	}
	return next, err
}

// replaced is an object with a new status or, without a subresource, with everything but the status replaced.
// Annotations change with either, and a change of the spec makes a new generation.
func replaced(was Object, subresource, body string) (Object, error) {
	next, err := Decoded(ResourceOf(was), body)
	if err != nil {
		return nil, err
	}
	out := was.DeepCopyObject().(Object)
	out.SetAnnotations(next.GetAnnotations())
	changed := false
	switch out := out.(type) {
	case *appsv1.Deployment:
		if next := next.(*appsv1.Deployment); subresource == "status" {
			out.Status = next.Status
		} else {
			changed = !equality.Semantic.DeepEqual(out.Spec, next.Spec)
			out.Spec = next.Spec
		}
	case *appsv1.ReplicaSet:
		if next := next.(*appsv1.ReplicaSet); subresource == "status" {
			out.Status = next.Status
		} else {
			changed = !equality.Semantic.DeepEqual(out.Spec, next.Spec)
			out.Spec = next.Spec
		}
	case *appsv1.ControllerRevision:
		out.Revision = next.(*appsv1.ControllerRevision).Revision
	default:
		return nil, fmt.Errorf("a %T is not updated here", was)
	}
	if changed {
		out.SetGeneration(was.GetGeneration() + 1)
	}
	return out, nil
}

// Decoded is the object of a resource that a JSON text has.
//
// Errors: the resource is unknown here, or the text is no object of it.
func Decoded(resource, body string) (Object, error) {
	var obj Object
	switch resource {
	case "deployments":
		obj = &appsv1.Deployment{}
	case "replicasets":
		obj = &appsv1.ReplicaSet{}
	case "statefulsets":
		obj = &appsv1.StatefulSet{}
	case "daemonsets":
		obj = &appsv1.DaemonSet{}
	case "controllerrevisions":
		obj = &appsv1.ControllerRevision{}
	case "pods":
		obj = &corev1.Pod{}
	case "replicationcontrollers":
		obj = &corev1.ReplicationController{}
	case "jobs":
		obj = &batchv1.Job{}
	case "cronjobs":
		obj = &batchv1.CronJob{}
	case "poddisruptionbudgets":
		obj = &policyv1.PodDisruptionBudget{}
	case "persistentvolumeclaims":
		obj = &corev1.PersistentVolumeClaim{}
	default:
		return nil, fmt.Errorf("the resource %q is not part of a world", resource)
	}
	if err := json.Unmarshal([]byte(body), obj); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	return obj, nil
}

// ResourceOf is the resource of an object; "" if it is unknown here.
func ResourceOf(obj runtime.Object) string {
	switch obj.(type) {
	case *appsv1.Deployment:
		return "deployments"
	case *appsv1.ReplicaSet:
		return "replicasets"
	case *appsv1.StatefulSet:
		return "statefulsets"
	case *appsv1.DaemonSet:
		return "daemonsets"
	case *appsv1.ControllerRevision:
		return "controllerrevisions"
	case *corev1.Pod:
		return "pods"
	case *corev1.ReplicationController:
		return "replicationcontrollers"
	case *batchv1.Job:
		return "jobs"
	case *batchv1.CronJob:
		return "cronjobs"
	case *policyv1.PodDisruptionBudget:
		return "poddisruptionbudgets"
	case *corev1.PersistentVolumeClaim:
		return "persistentvolumeclaims"
	case *discoveryv1.EndpointSlice:
		return "endpointslices"
	}
	return ""
}

// Newer is the next resourceVersion; "1" after one that is no number.
func Newer(version string) string {
	n, err := strconv.Atoi(version)
	if err != nil {
		return "1"
	}
	return strconv.Itoa(n + 1)
}
