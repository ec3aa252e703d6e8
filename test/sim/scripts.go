package sim

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/metadata"
	"github.com/millrace/millrace/test/sim/network"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/workloads"
	"github.com/millrace/millrace/test/sim/world"
)

// scene is one operation of users.
func scene(name string, do func(*world.World)) world.Scene { return world.Scene{Name: name, Do: do} }

// create makes an object.
func create[T metav1.Object](kind kinds.Kind, fresh func(*world.World) T) world.Scene {
	return scene("create "+kind.Kind, func(w *world.World) {
		obj := fresh(w)
		w.Create(apiserver.RefOf(kind.Name, obj), obj)
	})
}

// change changes the first object of a kind.
func change[T metav1.Object](kind kinds.Name, what string, how func(T)) world.Scene {
	return scene(what, func(w *world.World) {
		if all := w.API.List(kind); len(all) > 0 {
			w.API.Change(apiserver.RefOf(kind, all[0]), func(obj metav1.Object) { how(obj.(T)) })
		}
	})
}

// removeFirst deletes the first object of a kind.
func removeFirst(kind kinds.Name, how metav1.DeletionPropagation) world.Scene {
	return scene("delete, "+string(how), func(w *world.World) {
		if all := w.API.List(kind); len(all) > 0 {
			w.Delete(apiserver.RefOf(kind, all[0]), how)
		}
	})
}

func stateful(replicas int32, how func(*appsv1.StatefulSet)) world.Scene {
	return create(kinds.StatefulSets.Kind, func(w *world.World) *appsv1.StatefulSet {
		set := workloads.AnyStateful(w.Cluster, "db")
		set.Spec.Replicas = &replicas
		set.Spec.VolumeClaimTemplates = nil
		how(set)
		return set
	})
}

// members has the StatefulSet ask for another number.
func members(n int32) world.Scene {
	return change(kinds.StatefulSets.Name, fmt.Sprintf("scale to %d", n), func(s *appsv1.StatefulSet) { s.Spec.Replicas = &n })
}

func reimage(kind kinds.Name) world.Scene {
	return scene("roll", func(w *world.World) {
		for _, obj := range w.API.List(kind) {
			w.API.Change(apiserver.RefOf(kind, obj), func(obj metav1.Object) {
				switch o := obj.(type) {
				case *appsv1.StatefulSet:
					o.Spec.Template.Spec.Containers[0].Image = "db:v1"
				case *appsv1.DaemonSet:
					o.Spec.Template.Spec.Containers[0].Image = "agent:v1"
				}
			})
		}
	})
}

// statefulScenarios are of StatefulSets.
func statefulScenarios() []Scenario {
	plain := func(*appsv1.StatefulSet) {}
	parallel := func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }
	claims := func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	partition := func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1)) }
	return []Scenario{
		{Name: "members in order", Cast: "sets", Script: []world.Scene{stateful(2, plain), reimage(kinds.StatefulSets.Name)}},
		{Name: "members at once", Cast: "sets", Script: []world.Scene{stateful(2, parallel), members(1)}},
		{Name: "members from one on", Cast: "sets", Script: []world.Scene{stateful(2, partition), reimage(kinds.StatefulSets.Name)}},
		{Name: "claims that go when it shrinks", Cast: "sets", Script: []world.Scene{stateful(2, claims), members(1)}},
		{Name: "claims that go with their set", Cast: "sets", Script: []world.Scene{
			stateful(1, claims), removeFirst(kinds.StatefulSets.Name, metav1.DeletePropagationBackground),
		}},
		{Name: "a replication controller", Cast: "sets", Script: []world.Scene{controller(2), controllerSize(1)}},
	}
}

func controller(replicas int32) world.Scene {
	return scene("create a replication controller", func(w *world.World) {
		workloads.SomeController(w.Cluster)
		controllerSize(replicas).Do(w)
	})
}

func controllerSize(n int32) world.Scene {
	return change(kinds.ReplicationControllers.Name, fmt.Sprintf("scale to %d", n), func(rc *corev1.ReplicationController) { rc.Spec.Replicas = &n })
}

// daemonScenarios are of DaemonSets.
func daemonScenarios() []Scenario {
	set := func(surge, unavailable int32) world.Scene {
		return create(kinds.DaemonSets.Kind, func(w *world.World) *appsv1.DaemonSet {
			set := workloads.AnyDaemons(w.Cluster, "agent")
			most, least := intstr.FromInt32(surge), intstr.FromInt32(unavailable)
			set.Spec.UpdateStrategy.RollingUpdate.MaxSurge, set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &most, &least
			return set
		})
	}
	node := create(kinds.Nodes.Kind, func(*world.World) *corev1.Node {
		return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	})
	return []Scenario{
		{Name: "daemons roll", Cast: "daemons", Script: []world.Scene{node, set(0, 1), reimage(kinds.DaemonSets.Name)}},
		{Name: "daemons surge", Cast: "daemons", Script: []world.Scene{set(1, 0), reimage(kinds.DaemonSets.Name)}},
		{Name: "a node comes and goes", Cast: "daemons", Script: []world.Scene{set(0, 1), node, scene("delete a node", func(w *world.World) {
			w.Delete(cluster.NodeRef("node-1"), metav1.DeletePropagationBackground)
			w.Dirty = true
		})}},
	}
}

func work(parallelism, completions int32, how func(*batchv1.Job)) world.Scene {
	return create(kinds.Jobs.Kind, func(*world.World) *batchv1.Job {
		job := &batchv1.Job{
			TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: "sum", Namespace: cluster.Namespace},
			Spec: workloads.JobSpec(parallelism, completions),
		}
		how(job)
		return job
	})
}

// jobScenarios are of Jobs and CronJobs.
func jobScenarios() []Scenario {
	indexed := func(j *batchv1.Job) { j.Spec.CompletionMode = new(batchv1.IndexedCompletion) }
	fails := func(j *batchv1.Job) {
		j.Spec.Template.Spec.Containers[0].Image = nodes.Failing
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:      batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{1}},
		}}}
	}
	leads := func(j *batchv1.Job) {
		indexed(j)
		j.Spec.Template.Spec.Containers[0].Image = nodes.Leading
		j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
	}
	scenarios := []Scenario{
		{Name: "a job of several at once", Cast: "jobs", Script: []world.Scene{work(2, 3, func(*batchv1.Job) {})}},
		{Name: "a job with indexes", Cast: "jobs", Script: []world.Scene{work(2, 2, indexed)}},
		{Name: "a job that may not fail", Cast: "jobs", Script: []world.Scene{work(1, 1, fails)}},
		{Name: "a job of which one decides", Cast: "jobs", Script: []world.Scene{work(1, 2, leads)}},
		{Name: "a job and its age", Cast: "jobs", Script: []world.Scene{work(1, 1, func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = new(int32(30)) })}},
		{Name: "a changed schedule", Cast: "jobs", Clocks: true, Script: []world.Scene{
			cron("1 12 * * *", batchv1.AllowConcurrent), change(kinds.CronJobs.Name, "another schedule", func(c *batchv1.CronJob) { c.Spec.Schedule = "3 12 * * *" }),
		}},
	}
	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		scenarios = append(scenarios, Scenario{Name: "runs, " + string(policy), Cast: "jobs", Script: []world.Scene{cron("1,2 12 * * *", policy)}})
	}
	return scenarios
}

func cron(schedule string, policy batchv1.ConcurrencyPolicy) world.Scene {
	return create(kinds.CronJobs.Kind, func(w *world.World) *batchv1.CronJob { return workloads.CronJob("cron", schedule, policy) })
}

// otherScenarios are of the other controllers that users meet.
func otherScenarios() []Scenario {
	service := scene("create a service", func(w *world.World) { network.SomeService(w.Cluster) })
	budget := create(kinds.PodDisruptionBudgets.Kind, func(*world.World) *policyv1.PodDisruptionBudget {
		least := intstr.FromInt32(1)
		return &policyv1.PodDisruptionBudget{
			TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
			ObjectMeta: metav1.ObjectMeta{Name: web, Namespace: cluster.Namespace},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": web}}, MinAvailable: &least},
		}
	})
	deletes := func(w *world.World, pod *corev1.Pod) {
		w.Delete(apiserver.RefOf(kinds.Pods.Name, pod), metav1.DeletePropagationBackground)
	}
	return []Scenario{
		{Name: "a service and its pods", Cast: "network", Script: []world.Scene{controller(3), service, controllerSize(1)}},
		{Name: "a budget", Cast: "budgets", Script: []world.Scene{deploy(2), budget, onPod("delete a pod", deletes)}},
		{Name: "a quota counts", Cast: "quotas", Script: []world.Scene{
			scene("limit", users(metadata.LimitSome)), scene("create a pod", users(metadata.ChargedPod)), scene("create a service", users(metadata.ChargedService)), onPod("delete a pod", deletes),
		}},
		{Name: "a namespace goes", Cast: "demolition", Script: []world.Scene{
			scene("create a namespace", func(w *world.World) { w.Namespace("shop") }),
			scene("create a pod in it", func(w *world.World) {
				w.Create(events.Ref{Kind: kinds.Pods.Name, Namespace: "shop", Name: "p"}, &corev1.Pod{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"},
				})
			}),
			scene("delete it", func(w *world.World) { w.Delete(apiserver.NamespaceRef("shop"), metav1.DeletePropagationBackground) }),
		}},
		{Name: "an autoscaler", Cast: "autoscalers", Asks: true, Script: []world.Scene{
			deploy(1), scene("there is more to do", func(w *world.World) { w.Metrics.Loads = map[string]int64{web: 3 * workloads.Each} }),
			create(kinds.HorizontalPodAutoscalers.Kind, func(w *world.World) *autoscalingv2.HorizontalPodAutoscaler {
				return &autoscalingv2.HorizontalPodAutoscaler{
					TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
					ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: web},
					Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
						ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: web},
						MinReplicas:    new(int32(1)), MaxReplicas: 4, Metrics: []autoscalingv2.MetricSpec{workloads.AnyMetric(w.Cluster)},
					},
				}
			}),
		}},
	}
}
