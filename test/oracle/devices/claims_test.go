package devices_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/devices"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

func TestClaimsAreAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	for name, life := range map[string]stage.Life{"defaults": devices.ResourceClaims, "without lists": devices.ResourceClaimsWithoutLists} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				v := &lab{}
				for range rapid.IntRange(1, 16).Draw(r, "chapters") {
					v.act(r)
					v.Chapter()
				}
				v.Compare(t, r, life)
			})
		})
	}
}

// TestRefusedClaimsAreAsUpstreams is the same on an API server that refuses some writes; both controllers
// retry them within the chapter.
func TestRefusedClaimsAreAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		v := &lab{}
		for range rapid.IntRange(1, 16).Draw(r, "chapters") {
			v.refuse(r)
			v.act(r)
			v.Chapter()
		}
		v.Compare(t, r, devices.RefusedClaims)
	})
}

// refuse makes the API server refuse one kind of request in a chapter, or none. A name is never taken,
// because upstream lets the API server generate names and ours derives them. A forced apply has no conflicts.
func (v *lab) refuse(r *rapid.T) {
	v.Refused = rapid.SampledFrom([]stage.Refusal{
		{},
		{Verb: plan.Create, Kind: kinds.ResourceClaims.Name}, {Verb: plan.Patch, Kind: kinds.Pods.Name, Status: true},
		{Verb: plan.Update, Kind: kinds.ResourceClaims.Name, Status: true}, {Verb: plan.Update, Kind: kinds.ResourceClaims.Name},
		{Verb: plan.Delete, Kind: kinds.ResourceClaims.Name},
	}).Draw(r, "refused")
	if v.Refused.Verb == "" {
		return
	}
	v.Refused.Times = rapid.IntRange(1, 2).Draw(r, "times")
	v.Refused.Answer = rapid.SampledFrom(slices.DeleteFunc(stage.Refusals(v.Refused.Verb), func(answer plan.Response) bool {
		return stage.Lasting(answer) || answer.Reason == string(metav1.StatusReasonAlreadyExists) || v.Refused.Verb == plan.Patch && answer.Reason == string(metav1.StatusReasonConflict)
	})).Draw(r, "answer")
	v.Story = append(v.Story, v.Refused.String())
}

// lab has pods that use devices. One thing happens at a time, because upstream picks by chance which of
// several pods comes first.
type lab struct {
	oracletest.Village
	made int
}

func claimRef(name string) events.Ref {
	return events.Ref{Kind: kinds.ResourceClaims.Name, Namespace: oracletest.Namespace, Name: name}
}

var (
	labPods      = []string{"pod-a", "pod-b", "pod-with-a-name-that-is-so-long-that-it-has-to-be-cut"}
	labClaims    = []string{"shared", "other"}
	labTemplates = []string{"t", "u"}
)

func (v *lab) act(r *rapid.T) {
	pod, claim := rapid.SampledFrom(labPods).Draw(r, "pod"), rapid.SampledFrom(labClaims).Draw(r, "claim")
	switch rapid.IntRange(0, 11).Draw(r, "act") {
	case 0, 1, 2:
		v.pod(r, pod)
	case 3:
		v.template(r)
	case 4:
		v.claim(claim)
	case 5, 6:
		v.Does(func(api *apiserver.API) { schedule(api, pod) }, "schedule %s", pod)
	case 7:
		v.Does(func(api *apiserver.API) {
			api.Change(oracletest.PodRef(pod), func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n" })
		}, "give %s a node", pod)
	case 8:
		v.Does(func(api *apiserver.API) { allocate(api, claim, nil) }, "allocate %s", claim)
	case 9:
		v.Does(func(api *apiserver.API) { endPod(api, pod) }, "end %s", pod)
	case 10:
		v.Remove(oracletest.PodRef(pod))
	default:
		v.gone(r, pod, claim)
	}
}

// pod creates a pod with various entries, also in place of one that was force-deleted.
func (v *lab) pod(r *rapid.T, name string) {
	v.made++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: name, UID: types.UID(fmt.Sprint(name, "-", v.made))}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for i := range rapid.IntRange(0, 3).Draw(r, "entries") {
		e := corev1.PodResourceClaim{Name: fmt.Sprint("entry", i)}
		switch rapid.IntRange(0, 9).Draw(r, "entry") {
		case 0:
		case 1, 2, 3:
			e.ResourceClaimName = oracletest.Ptr(rapid.SampledFrom(labClaims).Draw(r, "named"))
		default:
			e.ResourceClaimTemplateName = oracletest.Ptr(rapid.SampledFrom(labTemplates).Draw(r, "by template"))
		}
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, e)
	}
	extended := rapid.IntRange(0, 4).Draw(r, "extended resources") == 0
	v.Does(func(api *apiserver.API) {
		if api.Get(oracletest.PodRef(name)) != nil {
			return
		}
		api.Load(kinds.Pods.Name, p)
		if extended { // the scheduler creates the claim, and notes it in the status
			c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: name + "-extended-resources-12345", UID: p.UID + "-claim",
				Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: p.UID, Controller: oracletest.Ptr(true)}}}}
			if api.Get(claimRef(c.Name)) != nil {
				return
			}
			api.Load(kinds.ResourceClaims.Name, c)
			allocate(api, c.Name, p)
			api.Change(oracletest.PodRef(name), func(o metav1.Object) {
				o.(*corev1.Pod).Spec.NodeName = "n"
				o.(*corev1.Pod).Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: c.Name}
			})
		}
	}, "create %s %v, extended: %v", p.UID, p.Spec.ResourceClaims, extended)
}

func (v *lab) template(r *rapid.T) {
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: rapid.SampledFrom(labTemplates).Draw(r, "template")}}
	t.UID = types.UID(t.Name)
	t.Spec.Labels, t.Spec.Annotations = map[string]string{"of": t.Name}, map[string]string{"note": "x"}
	request := resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c", AdminAccess: oracletest.Ptr(rapid.Bool().Draw(r, "admin"))}}
	if rapid.Bool().Draw(r, "list") {
		request = resourcev1.DeviceRequest{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "s", DeviceClassName: "c"}}}
	}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{request}
	v.Does(func(api *apiserver.API) { api.Load(kinds.ResourceClaimTemplates.Name, t) }, "template %s %v", t.Name, request)
}

func (v *lab) claim(name string) {
	v.made++
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: name, UID: types.UID(fmt.Sprint(name, "-", v.made))}}
	v.Does(func(api *apiserver.API) {
		if api.Get(claimRef(name)) == nil {
			api.Load(kinds.ResourceClaims.Name, c)
		}
	}, "create %s", c.UID)
}

// gone removes a pod, or deletes a claim.
func (v *lab) gone(r *rapid.T, pod, claim string) {
	if rapid.Bool().Draw(r, "a pod") {
		v.Does(func(api *apiserver.API) { api.Finish(oracletest.PodRef(pod)) }, "%s has gone", pod)
		return
	}
	v.Remove(claimRef(claim))
}

// schedule binds a pod to a node, with all its claims, if they exist.
func schedule(api *apiserver.API, name string) {
	p, ok := api.Get(oracletest.PodRef(name)).(*corev1.Pod)
	if !ok || p.DeletionTimestamp != nil || p.Spec.NodeName != "" || p.Status.Phase == corev1.PodSucceeded {
		return
	}
	for _, claim := range claimsOfPod(p) {
		c, ok := api.Get(claimRef(claim)).(*resourcev1.ResourceClaim)
		if !ok || c.DeletionTimestamp != nil {
			return
		}
	}
	for _, claim := range claimsOfPod(p) {
		allocate(api, claim, p)
	}
	api.Change(oracletest.PodRef(name), func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n" })
}

func claimsOfPod(p *corev1.Pod) (names []string) {
	for _, e := range p.Spec.ResourceClaims {
		name := "none"
		if e.ResourceClaimName != nil {
			name = *e.ResourceClaimName
		}
		for _, s := range p.Status.ResourceClaimStatuses {
			if s.Name == e.Name && s.ResourceClaimName != nil {
				name = *s.ResourceClaimName
			}
		}
		names = append(names, name)
	}
	return names
}

// allocate allocates devices for a claim, and reserves it for a pod; nil: for none.
func allocate(api *apiserver.API, name string, p *corev1.Pod) {
	api.Change(claimRef(name), func(o metav1.Object) {
		c := o.(*resourcev1.ResourceClaim)
		if c.DeletionTimestamp != nil {
			return
		}
		if len(c.Finalizers) == 0 {
			c.Finalizers = []string{resourcev1.Finalizer}
		}
		c.Status.Allocation = &resourcev1.AllocationResult{}
		for _, by := range c.Status.ReservedFor {
			if p != nil && by.UID == p.UID {
				return
			}
		}
		if p != nil {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
		}
	})
}

// endPod ends a pod that has its claims and shares none. Upstream creates missing claims even for an ended
// pod, and for an ended pod that shares a claim it adds and removes the reservation without end.
func endPod(api *apiserver.API, name string) {
	p, ok := api.Get(oracletest.PodRef(name)).(*corev1.Pod)
	if !ok || len(p.Status.ResourceClaimStatuses) < len(p.Spec.ResourceClaims) {
		return
	}
	for _, e := range p.Spec.ResourceClaims {
		if e.ResourceClaimName != nil {
			return
		}
	}
	api.Change(oracletest.PodRef(name), func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodSucceeded })
}
