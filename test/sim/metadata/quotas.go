package metadata

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Quotas is what users do with ResourceQuotas, and with what those limit.
var Quotas = []cluster.Operation{
	LimitSome, LimitSome, unlimit, ChargedPod, ChargedPod, ChargedPod, ChargedPod, cluster.FailPod, cluster.DeletePod, cluster.DeletePod, ChargedService, exposeService, dropService,
}

// limits is the only quota of a world.
var limits = events.Ref{Kind: kinds.ResourceQuotas.Name, Namespace: cluster.Namespace, Name: "limits"}

// limitable are the resources that it may limit.
var limitable = []corev1.ResourceName{
	corev1.ResourcePods, "count/pods", corev1.ResourceRequestsCPU, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceQuotas,
}

// LimitSome creates the quota, or changes what it limits.
func LimitSome(w *cluster.Cluster) {
	hard := corev1.ResourceList{}
	for _, name := range limitable {
		if w.Roll(2) == 0 {
			hard[name] = *resource.NewQuantity(int64(3+w.Roll(3)), resource.DecimalSI)
		}
	}
	w.Note("user: the quota limits %v", hard)
	if w.API.Get(limits) != nil {
		w.API.Change(limits, func(obj metav1.Object) { obj.(*corev1.ResourceQuota).Spec.Hard = hard })
		return
	}
	w.Create(limits, &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: limits.Name}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	})
}

func unlimit(w *cluster.Cluster) {
	if w.API.Get(limits) != nil {
		w.Note("user: no limits any more")
		w.API.Do(plan.Request{Verb: plan.Delete, Kind: limits.Kind, Namespace: limits.Namespace, Name: limits.Name})
	}
}

// charge is the API server's check before a create: it adds to the used amounts in the quota's
// status, unless that would exceed the limits.
//
// Upstream: k8s.io/apiserver/pkg/admission/plugin/resourcequota.
func charge(w *cluster.Cluster, use corev1.ResourceList) bool {
	quota, ok := w.API.Get(limits).(*corev1.ResourceQuota)
	if !ok {
		return true
	}
	next := quota.Status.DeepCopy()
	for name, amount := range use {
		used, counted := next.Used[name]
		if used.Add(amount); !counted {
			continue // not before the controller has counted; the API server would refuse what it cannot charge
		}
		if most := next.Hard[name]; used.Cmp(most) > 0 {
			w.Note("user: %s is used up", name)
			return false
		}
		next.Used[name] = used
	}
	w.API.Change(limits, func(obj metav1.Object) { obj.(*corev1.ResourceQuota).Status = *next })
	return true
}

func amountsOf(pairs ...any) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i].(string))] = *resource.NewQuantity(int64(pairs[i+1].(int)), resource.DecimalSI)
	}
	return list
}

// podUse and serviceUse are what one pod and one Service of a world use.
func podUse(p *corev1.Pod) corev1.ResourceList {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return amountsOf("count/pods", 1)
	}
	return amountsOf("count/pods", 1, "pods", 1, "requests.cpu", 1)
}

func serviceUse(s *corev1.Service) corev1.ResourceList {
	if s.Spec.Type == corev1.ServiceTypeNodePort {
		return amountsOf("services", 1, "services.nodeports", len(s.Spec.Ports))
	}
	return amountsOf("services", 1)
}

// ChargedPod creates a pod that a quota counts.
func ChargedPod(w *cluster.Cluster) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: fmt.Sprintf("p%d", w.Roll(5))},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: amountsOf("cpu", 1)},
		}}},
	}
	ref := apiserver.RefOf(kinds.Pods.Name, pod)
	if w.API.Get(ref) == nil && charge(w, podUse(pod)) {
		w.Note("user: create pod %s", pod.Name)
		w.Create(ref, pod)
	}
}

func serviceRef(w *cluster.Cluster) events.Ref {
	return events.Ref{Kind: kinds.Services.Name, Namespace: cluster.Namespace, Name: fmt.Sprintf("s%d", w.Roll(2))}
}

// ChargedService creates a Service that a quota counts.
func ChargedService(w *cluster.Cluster) {
	ref := serviceRef(w)
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}, {Port: 81}}},
	}
	if w.Roll(2) == 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
	}
	if w.API.Get(ref) == nil && charge(w, serviceUse(s)) {
		w.Note("user: create service %s", ref.Name)
		w.Create(ref, s)
	}
}

// exposeService gives a Service node ports, or removes them. The quota is charged for
// additional ones; removed ones are not credited.
func exposeService(w *cluster.Cluster) {
	ref := serviceRef(w)
	s, ok := w.API.Get(ref).(*corev1.Service)
	if !ok {
		return
	}
	to := corev1.ServiceTypeClusterIP
	if s.Spec.Type == to {
		if to = corev1.ServiceTypeNodePort; !charge(w, amountsOf("services.nodeports", len(s.Spec.Ports))) {
			return
		}
	}
	w.Note("user: service %s is %s", ref.Name, to)
	w.API.Change(ref, func(obj metav1.Object) { obj.(*corev1.Service).Spec.Type = to })
}

func dropService(w *cluster.Cluster) {
	if ref := serviceRef(w); w.API.Get(ref) != nil {
		w.Note("user: delete service %s", ref.Name)
		w.API.Do(plan.Request{Verb: plan.Delete, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}
}

// WithinLimits reports whether the quota's status is right.
func WithinLimits(w *cluster.Cluster) error {
	quota, ok := w.API.Get(limits).(*corev1.ResourceQuota)
	if !ok || !w.Runs("resourcequota-controller") {
		return nil
	}
	so := corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		so[name] = resource.Quantity{}
	}
	add := func(use corev1.ResourceList) {
		for name, amount := range use {
			if total, limited := so[name]; limited {
				total.Add(amount)
				so[name] = total
			}
		}
	}
	for _, obj := range w.API.List(kinds.Pods.Name) {
		add(podUse(obj.(*corev1.Pod)))
	}
	for _, obj := range w.API.List(kinds.Services.Name) {
		add(serviceUse(obj.(*corev1.Service)))
	}
	add(amountsOf("resourcequotas", 1))
	for what, lists := range map[string][2]corev1.ResourceList{"limits": {quota.Status.Hard, quota.Spec.Hard}, "uses": {quota.Status.Used, so}} {
		said, want := lists[0], lists[1]
		for name, amount := range want {
			if told, ok := said[name]; !ok || told.Cmp(amount) != 0 || len(said) != len(want) {
				if (w.Rest.Stuck || w.Rest.Began) && what == "uses" && !w.Rest.Late {
					w.Rest.Late = true
					w.Guard.Spare(cluster.CountedLate)
					return nil
				}
				return fmt.Errorf("the quota says that it %s %v, and %v is so", what, said, want)
			}
		}
	}
	return nil
}
