package resourceclaim

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/device"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	kubenames "github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// failed is the reason of the Event that a claim cannot be created.
const failed = "FailedResourceClaimCreation"

func observePod(s reconcile.Snapshot, k events.Key) (View, bool) {
	p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v, of := View{Pod: p}, lookup(s, k.Namespace)
	for _, claim := range reconcile.ControlledBy(s, kinds.ResourceClaims, p.UID) {
		if claim.Namespace == p.Namespace {
			v.Claims = append(v.Claims, claim)
		}
	}
	taken := refused(s, k, p)
	for i := range p.Spec.ResourceClaims {
		e := &p.Spec.ResourceClaims[i]
		_, name := device.ClaimOf(p, e)
		if claim := of(name); claim != nil && !slices.Contains(v.Claims, claim) {
			v.Claims = append(v.Claims, claim)
		}
		if e.ResourceClaimTemplateName == nil {
			continue
		}
		if t, ok := reconcile.Get(s, kinds.ResourceClaimTemplates, k.Namespace, *e.ResourceClaimTemplateName); ok && !slices.Contains(v.Templates, t) {
			v.Templates = append(v.Templates, t)
		}
		if v.claim(e) == nil {
			v.name(e, func(name string) bool { return taken[name] || of(name) != nil })
		}
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, p); ok {
		for _, r := range last.Results {
			if r.OK() && r.Ref.Kind == kinds.Events.Name {
				v.Told = append(v.Told, r.Ref.Name)
			}
		}
	}
	return v, true
}

// refused are the names that were taken when the last claims were to be created.
func refused(s reconcile.Snapshot, k events.Key, p *corev1.Pod) map[string]bool {
	taken := map[string]bool{}
	if last, ok := reconcile.LastOf(s, k, events.LaneWrite, p); ok {
		for _, r := range last.Results {
			if r.Ref.Kind == kinds.ResourceClaims.Name && r.Reason == string(metav1.StatusReasonAlreadyExists) {
				taken[r.Ref.Name] = true
			}
		}
	}
	return taken
}

// name gives an entry's claim its name. It derives the name from the pod's uid and the entry, so
// that a repeated create creates the same claim.
func (v *View) name(e *corev1.PodResourceClaim, taken func(string) bool) {
	if v.Names == nil {
		v.Names = map[string]string{}
	}
	others := slices.Collect(maps.Values(v.Names))
	pod := &metav1.ObjectMeta{Name: v.Pod.Name, UID: v.Pod.UID}
	v.Names[e.Name] = kubenames.Suffixed(stem(v.Pod.Name, e.Name), pod, 0, 1, func(name string) bool {
		return slices.Contains(others, name) || taken(name)
	})[0]
}

// stem is the beginning of a claim's name. It shortens both parts of long names, so that some of
// the entry's name remains.
//
// Upstream: handleClaim, generateName.
func stem(pod, entry string) string {
	const longest = 57
	whole := pod + "-" + entry + "-"
	if len(whole) <= longest {
		return whole
	}
	return pod[:len(pod)*longest/len(whole)] + "-" + entry[:len(entry)*longest/len(whole)]
}

// claim is the claim of an entry that requests it by a template: the claim that the status
// names, if the pod owns it, or one that was created for the entry; nil if there is none.
func (v View) claim(e *corev1.PodResourceClaim) *resourcev1.ResourceClaim {
	if what, name := device.ClaimOf(v.Pod, e); what == device.Made {
		if claim := v.find(name); claim != nil && owner.Controls(v.Pod, claim) {
			return claim
		}
	}
	for _, claim := range v.Claims {
		if owner.Controls(v.Pod, claim) && claim.Annotations[resourcev1.PodResourceClaimAnnotation] == e.Name {
			return claim
		}
	}
	return nil
}

func (v View) find(name string) *resourcev1.ResourceClaim {
	for _, claim := range v.Claims {
		if claim.Name == name {
			return claim
		}
	}
	return nil
}

// decidePod creates the claims that a pod requests by templates, and writes their names into the
// pod's status when all exist. An entry for which no claim can be created delays those after it.
//
// Upstream: pkg/controller/resourceclaim, syncPod.
func (v View) decidePod() reconcile.Decision {
	switch {
	case v.Pod.DeletionTimestamp != nil:
		return reconcile.Nothing("the pod is being deleted")
	case !lacks(v.Pod, v.find):
		return reconcile.Nothing("the pod has its claims")
	}
	d := reconcile.Decision{}
	var said []corev1.PodResourceClaimStatus
	for i := range v.Pod.Spec.ResourceClaims {
		e := &v.Pod.Spec.ResourceClaims[i]
		what, _ := device.ClaimOf(v.Pod, e)
		claim := v.claim(e)
		switch {
		case what == device.Unneeded, what == device.Given:
		case claim != nil && what != device.Unsupported:
			said = append(said, corev1.PodResourceClaimStatus{Name: e.Name, ResourceClaimName: &claim.Name})
		default:
			t, why := v.templateOf(e)
			if t == nil && len(d.Commands) > 0 {
				return d
			}
			if t == nil {
				return v.tell(e, why)
			}
			d.Because = "the pod lacks a claim"
			v.create(&d, e, t)
		}
	}
	if len(d.Commands) > 0 {
		return d
	}
	return reconcile.Do("the pod's status does not list its claims", v.say(said))
}

// templateOf is the template of an entry; nil if no claim can be created from it, with the
// reason.
func (v View) templateOf(e *corev1.PodResourceClaim) (t *resourcev1.ResourceClaimTemplate, why string) {
	if e.ResourceClaimTemplateName == nil {
		return nil, fmt.Sprintf(`checking for claim before creating it: pod "%s/%s", spec.resourceClaim %q: none of the supported fields are set`, v.Pod.Namespace, v.Pod.Name, e.Name)
	}
	for _, t := range v.Templates {
		switch {
		case t.Name != *e.ResourceClaimTemplateName:
		case !v.Gates.On(gate.DRAPrioritizedList) && prioritized(t.Spec.Spec):
			return nil, "template includes a prioritized list of subrequests, but the feature is disabled"
		default:
			return t, ""
		}
	}
	return nil, fmt.Sprintf("resource claim template %q: resourceclaimtemplate.resource.k8s.io %q not found", *e.ResourceClaimTemplateName, *e.ResourceClaimTemplateName)
}

// create adds the create of an entry's claim, and its figures.
func (v View) create(d *reconcile.Decision, e *corev1.PodResourceClaim, t *resourcev1.ResourceClaimTemplate) {
	annotations := map[string]string{}
	maps.Copy(annotations, t.Spec.Annotations)
	annotations[resourcev1.PodResourceClaimAnnotation] = e.Name
	controls := owner.Reference(kinds.Pods.Kind, v.Pod)
	controls.BlockOwnerDeletion = nil
	body := reconcile.Body(&resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Labels: t.Spec.Labels, Annotations: annotations, OwnerReferences: []metav1.OwnerReference{controls}},
		Spec:       t.Spec.Spec,
	})
	c := reconcile.Create(kinds.ResourceClaims.Kind, v.Pod.Namespace, v.Names[e.Name], body, reconcile.WithEvents(nil, v.notice(e, "create ResourceClaim : {error}")))
	admin := truth(byAdmin(t.Spec.Spec))
	d.Commands = append(d.Commands, c)
	d.Figures = append(d.Figures,
		reconcile.Figure{Metric: created, Value: 1, Labels: []string{"success", admin}, Of: c.Ref()},
		reconcile.Figure{Metric: created, Value: 1, Labels: []string{"failure", admin}, Of: c.Ref(), Failed: true})
}

// say writes the names of the pod's claims into its status: all of them, because server-side
// apply removes a name that this field manager applied before and leaves out.
func (v View) say(said []corev1.PodResourceClaimStatus) events.Command {
	c := reconcile.Patch(kinds.Pods.Kind, v.Pod, types.ApplyPatchType, reconcile.Body(map[string]any{
		"apiVersion": kinds.Pods.APIVersion(), "kind": kinds.Pods.Kind.Kind,
		"metadata": map[string]any{"name": v.Pod.Name, "namespace": v.Pod.Namespace, "uid": v.Pod.UID},
		"status":   map[string]any{"resourceClaimStatuses": said},
	}))
	c.Subresource = "status"
	return c
}

// tell records, once, why no claim can be created for an entry. Only another template can change
// that.
//
// Upstream: said again with every retry.
func (v View) tell(e *corev1.PodResourceClaim, why string) reconcile.Decision {
	name := failed + " " + e.Name + ": " + why
	if slices.Contains(v.Told, name) {
		return reconcile.Nothing("a claim of the pod cannot be created, and the Event is recorded")
	}
	c := reconcile.Record(*v.notice(e, why))
	c.Kind, c.Version, c.Namespace, c.Name = kinds.Events.Name, kinds.Events.Version, v.Pod.Namespace, name
	return reconcile.Do("a claim of the pod cannot be created", c)
}

func (v View) notice(e *corev1.PodResourceClaim, message string) *events.Notice {
	return &events.Notice{
		About: reconcile.About(kinds.Pods.Kind, v.Pod), Type: corev1.EventTypeWarning, Reason: failed,
		Message: "PodResourceClaim " + e.Name + ": " + message,
	}
}
