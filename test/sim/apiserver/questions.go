package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// readings is the answer of the writer's door to an autoscaler's question.
func (a *API) readings(r plan.Request) plan.Response {
	var question query.ReadingsQuestion
	if err := json.Unmarshal(r.Body, &question); err != nil {
		return Refusal(400, "BadRequest", err.Error())
	}
	var found query.Readings
	ref, known := a.OwnerRef(r.Owner, r.Namespace)
	d, there := a.Get(ref).(*appsv1.Deployment)
	if !known || !there {
		found.Failure = fmt.Sprintf("%s %q not found", r.Owner.Kind, r.Owner.Name)
	} else {
		s := scaleOf(d)
		found.Scale = &query.Scale{
			Kind: ref.Kind, Version: "v1", UID: d.UID, ResourceVersion: d.ResourceVersion,
			Replicas: s.Spec.Replicas, Current: s.Status.Replicas, Selector: s.Status.Selector,
		}
		if n := s.Spec.Replicas; n != 0 && n >= question.Least && n <= question.Most {
			for range question.Metrics {
				found.Metrics = append(found.Metrics, a.Meter(d, s.Status.Selector))
			}
		}
	}
	body, _ := json.Marshal(found) // it has only fields that encoding/json accepts
	return plan.Response{Code: 200, Body: body}
}

// review reports whether a user may do something. The question is about an existing object.
func (a *API) review(about metav1.Object, body []byte) plan.Response {
	var asked authorizationv1.SubjectAccessReviewSpec
	if err := json.Unmarshal(body, &asked); err != nil {
		return Refusal(400, "BadRequest", err.Error())
	}
	review := query.Review{Of: asked.ResourceAttributes}
	review.Status.Allowed = a.Allows != nil && a.Allows(asked, a.now())
	r := answer(about)
	r.Body, _ = json.Marshal(review) // it has only fields that encoding/json accepts
	return r
}

// users are the pods that may need a claim.
func (a *API) users(claim metav1.Object) plan.Response {
	found := a.UsersOf(claim)
	for _, obj := range a.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if _, isClaim := claim.(*corev1.PersistentVolumeClaim); isClaim && pod.Namespace == claim.GetNamespace() {
			found.Take(pod, claim.GetName())
		}
	}
	r := answer(claim)
	r.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	return r
}

// UsersOf are the objects that need a group or a range.
func (a *API) UsersOf(about metav1.Object) (found query.Users) {
	switch o := about.(type) {
	case *schedulingv1alpha2.PodGroup:
		for _, obj := range a.List(kinds.Pods.Name) {
			if pod := obj.(*corev1.Pod); pod.Namespace == o.Namespace && query.InPodGroup(pod, o.Name) {
				found.Name(pod.Name)
			}
		}
	case *networkingv1.ServiceCIDR:
		var all []*networkingv1.ServiceCIDR
		for _, obj := range a.List(kinds.ServiceCIDRs.Name) {
			all = append(all, obj.(*networkingv1.ServiceCIDR))
		}
		ranges := query.RangesOf(o, all)
		for _, address := range a.List(kinds.IPAddresses.Name) {
			if ranges.Need(address) {
				found.Name(address.GetName())
			}
		}
	}
	return found
}

// objects says how a resource is served, and returns a page of its objects.
func (a *API) objects(about metav1.Object, body []byte) plan.Response {
	var question query.ObjectsQuestion
	if err := json.Unmarshal(body, &question); err != nil {
		return Refusal(400, "BadRequest", err.Error())
	}
	var found query.Objects
	if c := a.Of(question.Resource); c != nil && !question.Last {
		found.Version, found.Kind, found.At = c.Kind.Version, c.Kind.Kind, strconv.FormatInt(a.Version, 10)
		for i, obj := range c.Sorted {
			if at := obj.GetNamespace() + "/" + obj.GetName(); question.Version == "" || at <= question.From {
				continue
			} else if kinds.CompareVersions(obj.GetResourceVersion(), question.Version) <= 0 {
				found.Objects = append(found.Objects, query.Stored{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()})
			}
			if len(found.Objects) == page && i < len(c.Sorted)-1 {
				found.More = obj.GetNamespace() + "/" + obj.GetName()
				break
			}
		}
	}
	r := answer(about)
	r.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	return r
}

// search is what a namespace holds.
func (a *API) search(ns metav1.Object, body []byte) plan.Response {
	var question query.ContentsQuestion
	if err := json.Unmarshal(body, &question); err != nil {
		return Refusal(400, "BadRequest", err.Error())
	}
	var found query.Contents
	for _, first := range []bool{true, false} {
		for _, c := range a.Kinds {
			if !c.Kind.Namespaced || slices.Contains(question.First, c.Kind.Name) != first {
				continue
			}
			if h := c.Holding(ns.GetName()); h.Count > 0 {
				found.Kinds = append(found.Kinds, h)
			}
		}
		if found.Partial = first && len(found.Kinds) > 0; found.Partial {
			break
		}
	}
	found.Limit(question.After)
	r := answer(ns)
	r.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	return r
}

// Holding is how many objects of the kind a namespace holds, and which of them are not being deleted.
func (c *Collection) Holding(namespace string) query.Holding {
	h := query.Holding{Kind: c.Kind.Name, Version: c.Kind.Version}
	for _, obj := range c.Sorted {
		if obj.GetNamespace() != namespace {
			continue
		}
		if h.Count++; obj.GetDeletionTimestamp() == nil {
			h.Standing = append(h.Standing, query.Standing{Name: obj.GetName(), UID: obj.GetUID()})
		} else if grace := obj.GetDeletionGracePeriodSeconds(); grace != nil {
			h.Grace = max(h.Grace, *grace)
		}
	}
	return h
}

// ranges are the ranges of all objects of a kind.
func (a *API) ranges(kind kinds.Name) plan.Response {
	found := []query.Ranged{}
	for _, obj := range a.List(kind) {
		if n := obj.(*corev1.Node); len(n.Spec.PodCIDRs) > 0 {
			found = append(found, query.Ranged{Name: n.Name, UID: n.UID, Ranges: n.Spec.PodCIDRs})
		}
	}
	body, _ := json.Marshal(found) // it has only fields that encoding/json accepts
	return plan.Response{Code: 200, Body: body}
}

// typesOf is the writer's answer about a policy, which must still be as it was when it was
// asked about.
func typesOf(now metav1.Object, body []byte) plan.Response {
	var p admissionregistrationv1.ValidatingAdmissionPolicy
	if err := json.Unmarshal(body, &p); err != nil {
		return Refusal(400, "BadRequest", err.Error())
	}
	r := answer(now)
	r.Body, _ = json.Marshal(query.Types{Warnings: Misfits(&p)}) // it has only fields that encoding/json accepts
	return r
}

// page is how many objects one page of a list has.
const page = 2

// Admission policies have one expression, which is valid unless it is this one.
const Misfit = "object.nothing == 1"

// Misfits is the type checker's findings in a policy.
func Misfits(p *admissionregistrationv1.ValidatingAdmissionPolicy) (all []admissionregistrationv1.ExpressionWarning) {
	for i, v := range p.Spec.Validations {
		if v.Expression == Misfit {
			all = append(all, admissionregistrationv1.ExpressionWarning{FieldRef: fmt.Sprintf("spec.validations[%d].expression", i), Warning: "undefined field"})
		}
	}
	return all
}
