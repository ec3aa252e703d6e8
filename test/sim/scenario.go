package sim

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/metadata"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/workloads"
	"github.com/millrace/millrace/test/sim/world"
)

// Scenario is a script with a name.
type Scenario struct {
	Name   string
	Script []world.Scene
	// Cast selects the controllers that run; empty: those of Deployments.
	Cast string
	// Asks: a controller asks again and again, so that the world never sleeps.
	Asks bool
	// Horizon is as in [world.Options].
	Horizon time.Duration
	// Clocks: the script depends on the reconcilers' clocks, so no fault sets them.
	Clocks bool
}

// users has users do an operation.
func users(do cluster.Operation) func(*world.World) { return func(w *world.World) { do(w.Cluster) } }

const web = "web"

func deploy(replicas int32) world.Scene { return deployWith(replicas, 1, 0) }

func deployWith(replicas, surge, unavailable int32) world.Scene {
	return world.Scene{Name: fmt.Sprintf("create a deployment of %d", replicas), Do: func(w *world.World) { workloads.Deploy(w.Cluster, web, replicas, surge, unavailable) }}
}

func scale(n int32) world.Scene {
	return world.Scene{Name: fmt.Sprintf("scale to %d", n), Do: func(w *world.World) { workloads.Scale(w.Cluster, web, n) }}
}

func image(image string) world.Scene {
	return world.Scene{Name: "roll to " + image, Do: func(w *world.World) { workloads.Image(w.Cluster, web, image) }}
}

func pause(paused bool) world.Scene {
	return world.Scene{Name: fmt.Sprintf("paused: %v", paused), Do: func(w *world.World) {
		workloads.Edit(w.Cluster, web, func(d *appsv1.Deployment) { d.Spec.Paused = paused })
	}}
}

func remove(how metav1.DeletionPropagation) world.Scene {
	return world.Scene{Name: "delete, " + string(how), Do: func(w *world.World) { w.Delete(workloads.DeploymentRef(web), how) }}
}

// after plays a scene so many steps after the last one, while its effects are still under way.
func after(s world.Scene, steps int) world.Scene {
	s.After = steps
	return s
}

// onPod does something with the first pod.
func onPod(name string, do func(*world.World, *corev1.Pod)) world.Scene {
	return world.Scene{Name: name, Do: func(w *world.World) {
		if pods := w.API.List(kinds.Pods.Name); len(pods) > 0 {
			do(w, pods[0].(*corev1.Pod))
		}
	}}
}

// adopt puts the pods back into their set's selector that were taken out of it.
func adopt() world.Scene {
	return world.Scene{Name: "adopt", Do: func(w *world.World) {
		for _, pod := range w.API.List(kinds.Pods.Name) {
			if _, away := pod.GetLabels()["was"]; away {
				w.Relabel(pod)
			}
		}
	}}
}

// quota bounds the number of pods; negative is no limit.
func quota(most int) world.Scene {
	return world.Scene{Name: fmt.Sprintf("quota: %d pods", most), Do: func(w *world.World) {
		refuseBeyond(w.Cluster, most)
	}}
}

// refuseBeyond has the API server refuse pods beyond a number; negative is no limit.
func refuseBeyond(w *cluster.Cluster, most int) {
	w.API.Refuse = func(r plan.Request) *plan.Response {
		if most < 0 || r.Verb != plan.Create || r.Kind != kinds.Pods.Name || len(w.API.List(kinds.Pods.Name)) < most {
			return nil
		}
		refused := apiserver.Refusal(403, "Forbidden", "exceeded quota")
		return &refused
	}
}

func foreign(name string) world.Scene {
	return world.Scene{Name: "another client writes: " + name, Do: func(w *world.World) {
		for _, kind := range []kinds.Name{kinds.Deployments.Name, kinds.ReplicaSets.Name, kinds.Pods.Name} {
			for _, obj := range w.API.List(kind) {
				w.Annotate(apiserver.RefOf(kind, obj), name)
			}
		}
	}}
}

// Scenarios are the scripts that the sieve plays with faults at every point.
func Scenarios() []Scenario {
	background, foreground, orphan := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	relabel := func(w *world.World, pod *corev1.Pod) { w.Relabel(pod) }
	kill := func(w *world.World, pod *corev1.Pod) { w.Delete(apiserver.RefOf(kinds.Pods.Name, pod), background) }
	fail := func(w *world.World, pod *corev1.Pod) {
		w.API.Change(apiserver.RefOf(kinds.Pods.Name, pod), func(obj metav1.Object) { nodes.Reject(obj) })
	}
	workloads := []Scenario{
		{Name: "create", Script: []world.Scene{deploy(3)}},
		{Name: "scale up", Script: []world.Scene{deploy(1), scale(4)}},
		{Name: "scale down", Script: []world.Scene{deploy(4), scale(1)}},
		{Name: "scale in the middle", Script: []world.Scene{deploy(4), after(scale(1), 60), after(scale(3), 40)}},
		{Name: "roll", Script: []world.Scene{deploy(2), image("web:v1")}},
		{Name: "roll with fewer", Script: []world.Scene{deployWith(3, 0, 1), image("web:v1")}},
		{Name: "roll back in the middle", Script: []world.Scene{deploy(2), image("web:v1"), after(image("web:v0"), 80)}},
		{Name: "roll on in the middle", Script: []world.Scene{deployWith(2, 1, 1), after(image("web:v1"), 70), after(image("web:v2"), 70)}},
		{Name: "pause and resume", Script: []world.Scene{deploy(2), pause(true), image("web:v1"), pause(false)}},
		{Name: "delete in the background", Script: []world.Scene{deploy(2), remove(background)}},
		{Name: "delete in the foreground", Script: []world.Scene{deploy(2), remove(foreground)}},
		{Name: "delete while it is created", Script: []world.Scene{deploy(3), after(remove(background), 60)}},
		{Name: "leave orphans and adopt them", Script: []world.Scene{deploy(2), remove(orphan), deploy(2)}},
		{Name: "release a pod and adopt it", Script: []world.Scene{deploy(2), onPod("release", relabel), adopt()}},
		{Name: "a pod is deleted and one fails", Script: []world.Scene{deploy(2), onPod("delete", kill), onPod("fail", fail)}},
		{Name: "the same name again at once", Script: []world.Scene{deploy(2), remove(background), after(deploy(3), 1)}},
		{Name: "a quota comes and goes", Script: []world.Scene{quota(1), deploy(3), quota(-1)}},
		{Name: "another client writes too", Script: []world.Scene{deploy(2), after(foreign("a"), 50), after(foreign("b"), 10), image("web:v1"), after(foreign("c"), 60)}},
		{Name: "a namespace", Cast: "furniture", Script: []world.Scene{
			{Name: "create a namespace", Do: func(w *world.World) { w.Namespace("shop") }},
			{Name: "forge its certificate", Do: func(w *world.World) { metadata.Forge(w.Cluster, "shop") }},
			{Name: "take its account", Do: func(w *world.World) {
				w.Delete(events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: "shop", Name: "default"}, background)
			}},
			{Name: "take its certificate", Do: func(w *world.World) { w.Delete(metadata.CertificateOf("shop"), background) }},
		}},
	}
	return slices.Concat(workloads, statefulScenarios(), daemonScenarios(), jobScenarios(), otherScenarios())
}
