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
)

// Scene is one operation of users in a script.
type Scene struct {
	Name string
	// After is how many steps after the last scene it plays; 0: when nothing else moves any
	// more.
	After int
	Do    func(*World)
}

// inTurn lets the next actor in turn act, and plays the script.
func (w *World) inTurn() bool {
	if w.scene < len(w.options.Script) {
		if s := w.options.Script[w.scene]; s.After > 0 && w.waited >= s.After {
			w.play(s)
			return true
		}
	}
	for i := range w.actors {
		at := (w.turn + i) % len(w.actors)
		if a := w.actors[at]; a.ready() {
			w.turn, w.waited = at+1, w.waited+1
			a.act()
			return true
		}
	}
	switch {
	case w.scene < len(w.options.Script) && !w.soon():
		w.play(w.options.Script[w.scene])
		return true
	case w.still():
		return false
	default:
		return w.sleep()
	}
}

// soon reports whether something becomes due within a short time.
func (w *World) soon() bool {
	const near = 15 * time.Second
	next := w.next()
	return !next.IsZero() && next.Sub(w.now) <= near && !w.options.Asks
}

func (w *World) play(s Scene) {
	w.note("script: %s", s.Name)
	w.scene, w.waited = w.scene+1, 0
	w.tally.Changes++
	w.guard.stirred()
	s.Do(w)
}

// Scenario is a script with a name.
type Scenario struct {
	Name   string
	Script []Scene
	// Cast selects the controllers that run; empty: those of Deployments.
	Cast string
	// Asks: a controller asks again and again, so that the world never sleeps.
	Asks bool
	// Horizon is as in [Options].
	Horizon time.Duration
	// Clocks: the script depends on the reconcilers' clocks, so no fault sets them.
	Clocks bool
}

const web = "web"

func deploy(replicas int32) Scene { return deployWith(replicas, 1, 0) }

func deployWith(replicas, surge, unavailable int32) Scene {
	return Scene{Name: fmt.Sprintf("create a deployment of %d", replicas), Do: func(w *World) { w.Deploy(web, replicas, surge, unavailable) }}
}

func scale(n int32) Scene {
	return Scene{Name: fmt.Sprintf("scale to %d", n), Do: func(w *World) { w.Scale(web, n) }}
}

func image(image string) Scene {
	return Scene{Name: "roll to " + image, Do: func(w *World) { w.Image(web, image) }}
}

func pause(paused bool) Scene {
	return Scene{Name: fmt.Sprintf("paused: %v", paused), Do: func(w *World) {
		w.Edit(web, func(d *appsv1.Deployment) { d.Spec.Paused = paused })
	}}
}

func remove(how metav1.DeletionPropagation) Scene {
	return Scene{Name: "delete, " + string(how), Do: func(w *World) { w.Delete(deploymentRef(web), how) }}
}

// after plays a scene so many steps after the last one, while its effects are still under way.
func (s Scene) after(steps int) Scene {
	s.After = steps
	return s
}

// onPod does something with the first pod.
func onPod(name string, do func(*World, *corev1.Pod)) Scene {
	return Scene{Name: name, Do: func(w *World) {
		if pods := w.api.List(kinds.Pods.Name); len(pods) > 0 {
			do(w, pods[0].(*corev1.Pod))
		}
	}}
}

// adopt puts the pods back into their set's selector that were taken out of it.
func adopt() Scene {
	return Scene{Name: "adopt", Do: func(w *World) {
		for _, pod := range w.api.List(kinds.Pods.Name) {
			if _, away := pod.GetLabels()["was"]; away {
				w.Relabel(pod)
			}
		}
	}}
}

// quota bounds the number of pods; negative is no limit.
func quota(most int) Scene {
	return Scene{Name: fmt.Sprintf("quota: %d pods", most), Do: func(w *World) {
		w.api.Refuse = func(r plan.Request) *plan.Response {
			if most < 0 || r.Verb != plan.Create || r.Kind != kinds.Pods.Name || len(w.api.List(kinds.Pods.Name)) < most {
				return nil
			}
			refused := refusal(403, "Forbidden", "exceeded quota")
			return &refused
		}
	}}
}

func foreign(name string) Scene {
	return Scene{Name: "another client writes: " + name, Do: func(w *World) {
		for _, kind := range []kinds.Name{kinds.Deployments.Name, kinds.ReplicaSets.Name, kinds.Pods.Name} {
			for _, obj := range w.api.List(kind) {
				w.Annotate(refOf(kind, obj), name)
			}
		}
	}}
}

// Scenarios are the scripts that the sieve plays with faults at every point.
func Scenarios() []Scenario {
	background, foreground, orphan := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	relabel := func(w *World, pod *corev1.Pod) { w.Relabel(pod) }
	kill := func(w *World, pod *corev1.Pod) { w.Delete(refOf(kinds.Pods.Name, pod), background) }
	fail := func(w *World, pod *corev1.Pod) {
		w.api.Change(refOf(kinds.Pods.Name, pod), func(obj metav1.Object) { reject(obj) })
	}
	workloads := []Scenario{
		{Name: "create", Script: []Scene{deploy(3)}},
		{Name: "scale up", Script: []Scene{deploy(1), scale(4)}},
		{Name: "scale down", Script: []Scene{deploy(4), scale(1)}},
		{Name: "scale in the middle", Script: []Scene{deploy(4), scale(1).after(60), scale(3).after(40)}},
		{Name: "roll", Script: []Scene{deploy(2), image("web:v1")}},
		{Name: "roll with fewer", Script: []Scene{deployWith(3, 0, 1), image("web:v1")}},
		{Name: "roll back in the middle", Script: []Scene{deploy(2), image("web:v1"), image("web:v0").after(80)}},
		{Name: "roll on in the middle", Script: []Scene{deployWith(2, 1, 1), image("web:v1").after(70), image("web:v2").after(70)}},
		{Name: "pause and resume", Script: []Scene{deploy(2), pause(true), image("web:v1"), pause(false)}},
		{Name: "delete in the background", Script: []Scene{deploy(2), remove(background)}},
		{Name: "delete in the foreground", Script: []Scene{deploy(2), remove(foreground)}},
		{Name: "delete while it is created", Script: []Scene{deploy(3), remove(background).after(60)}},
		{Name: "leave orphans and adopt them", Script: []Scene{deploy(2), remove(orphan), deploy(2)}},
		{Name: "release a pod and adopt it", Script: []Scene{deploy(2), onPod("release", relabel), adopt()}},
		{Name: "a pod is deleted and one fails", Script: []Scene{deploy(2), onPod("delete", kill), onPod("fail", fail)}},
		{Name: "the same name again at once", Script: []Scene{deploy(2), remove(background), deploy(3).after(1)}},
		{Name: "a quota comes and goes", Script: []Scene{quota(1), deploy(3), quota(-1)}},
		{Name: "another client writes too", Script: []Scene{deploy(2), foreign("a").after(50), foreign("b").after(10), image("web:v1"), foreign("c").after(60)}},
		{Name: "a namespace", Cast: "furniture", Script: []Scene{
			{Name: "create a namespace", Do: func(w *World) { w.Namespace("shop") }},
			{Name: "forge its certificate", Do: func(w *World) { w.Forge("shop") }},
			{Name: "take its account", Do: func(w *World) {
				w.Delete(events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: "shop", Name: "default"}, background)
			}},
			{Name: "take its certificate", Do: func(w *World) { w.Delete(certificateOf("shop"), background) }},
		}},
	}
	return slices.Concat(workloads, statefulScenarios(), daemonScenarios(), jobScenarios(), otherScenarios())
}

func imageOf(t corev1.PodTemplateSpec) string { return t.Spec.Containers[0].Image }

func ownerOf(obj metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return owner.Name
	}
	return ""
}
