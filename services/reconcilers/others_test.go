package reconcilers_test

import (
	"encoding/json"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A change of an object that is not the key's is compared with that object, too. If the turn
// saw another version of it, or it is unknown, a mismatch is no proof of a forgery.
func TestAnotherVersionOfWhatATurnChangesIsNoForgery(t *testing.T) {
	for name, command := range map[string]struct {
		verb events.Verb
		kind kinds.Name
	}{
		"deployment-controller":     {events.VerbUpdate, kinds.ReplicaSets.Name},
		"statefulset-controller":    {events.VerbUpdate, kinds.PersistentVolumeClaims.Name},
		"daemonset-controller":      {events.VerbUpdate, kinds.ControllerRevisions.Name},
		"node-lifecycle-controller": {events.VerbPatch, kinds.Nodes.Name},
	} {
		h := firstOf(t, name, func(h *honest) bool {
			c := h.command
			return c.Verb == command.verb && c.Kind == command.kind && c.Subresource == "" && (h.own == nil || h.own.GetName() != c.Name)
		})
		there := h.read(h.command.Ref())
		next := forgetful(t, there)
		h.read = func(events.Ref) metav1.Object { return next }
		forged := h.command
		if command.verb == events.VerbPatch { // the honest patch removes no taint of another manager
			forged.Body = json.RawMessage(`{"spec":{"taints":[{"key":"example.com/forged","effect":"NoExecute"}]}}`)
		}
		if err := h.fits(forged); err == nil || errors.Is(err, events.ErrSuperseded) {
			t.Errorf("%s: a forgery gives %v", name, err)
		}
		next.SetResourceVersion(there.GetResourceVersion() + "0")
		if err := h.fits(forged); !errors.Is(err, events.ErrSuperseded) {
			t.Errorf("%s: decided on another version, it gives %v", name, err)
		}
		h.read = none
		if err := h.fits(forged); !errors.Is(err, events.ErrSuperseded) {
			t.Errorf("%s: of an object that is gone it gives %v", name, err)
		}
	}
}

// A pod of an earlier revision must match an existing revision of the set. A pod of the set's
// template needs no revision, because that may have been created just now.
func TestAPodOfAnEarlierRevision(t *testing.T) {
	pod := func(image string) honest {
		return firstOf(t, "statefulset-controller", func(h *honest) bool {
			return h.story == "partition.txtar" && h.command.Verb == events.VerbCreate && bodied(func(body map[string]any) bool {
				container, _ := list(within(body, "spec")["containers"])[0].(map[string]any)
				container["image"] = image
				return true
			})(*h, &h.command)
		})
	}
	earlier := func(change func(r *appsv1.ControllerRevision)) func(events.Ref) metav1.Object {
		return func(ref events.Ref) metav1.Object {
			r, ok := pod("").read(ref).(*appsv1.ControllerRevision)
			if !ok {
				t.Fatalf("%v is no revision", ref)
			}
			change(r)
			return r
		}
	}
	for what, c := range map[string]struct {
		image       string
		read        func(events.Ref) metav1.Object
		fits, stale bool
	}{
		"of the revision":                   {"nginx:1", earlier(func(*appsv1.ControllerRevision) {}), true, false},
		"of the template":                   {"nginx:2", func(ref events.Ref) metav1.Object { t.Errorf("%v is read", ref); return nil }, true, false},
		"of neither":                        {"forged", earlier(func(*appsv1.ControllerRevision) {}), false, false},
		"of a revision that is gone":        {"nginx:1", none, false, true},
		"of a revision of another":          {"nginx:1", earlier(func(r *appsv1.ControllerRevision) { r.OwnerReferences[0].UID = "other" }), false, true},
		"of a revision that has no owner":   {"nginx:1", earlier(func(r *appsv1.ControllerRevision) { r.OwnerReferences = nil }), false, true},
		"of a revision that cannot be read": {"nginx:1", earlier(func(r *appsv1.ControllerRevision) { r.Data.Raw = []byte(`7`) }), false, true},
	} {
		h, reads := pod(c.image), 0
		h.read = func(ref events.Ref) metav1.Object {
			reads++
			return c.read(ref)
		}
		err := h.fits(h.command)
		if (err == nil) != c.fits || errors.Is(err, events.ErrSuperseded) != c.stale {
			t.Errorf("%s: the command fits with %v, want it: %t, stale: %t", what, err, c.fits, c.stale)
		}
		if reads > 1 {
			t.Errorf("%s: the revision is read %d times", what, reads)
		}
	}
}

// A ResourceClaim must be a copy of a template that its pod names. If the template has changed
// or is unknown, a mismatch is no proof of a forgery.
func TestAClaimOfATemplate(t *testing.T) {
	made := func() honest {
		return firstOf(t, "resourceclaim-controller", func(h *honest) bool { return h.story == "first.txtar" })
	}
	asks := made().read
	template := func(change func(*resourcev1.ResourceClaimTemplate)) func(events.Ref) metav1.Object {
		return func(ref events.Ref) metav1.Object {
			found, ok := asks(ref).(*resourcev1.ResourceClaimTemplate)
			if !ok {
				t.Fatalf("%v is no template", ref)
			}
			change(found)
			return found
		}
	}
	for what, c := range map[string]struct {
		pod         func(*corev1.Pod)
		read        func(events.Ref) metav1.Object
		fits, stale bool
	}{
		"as it is":       {func(*corev1.Pod) {}, template(func(*resourcev1.ResourceClaimTemplate) {}), true, false},
		"with new spec":  {func(*corev1.Pod) {}, template(func(t *resourcev1.ResourceClaimTemplate) { t.Spec.Spec.Devices.Requests = nil }), false, true},
		"with new label": {func(*corev1.Pod) {}, template(func(t *resourcev1.ResourceClaimTemplate) { t.Spec.Labels["new"] = "label" }), false, true},
		"that is gone":   {func(*corev1.Pod) {}, none, false, true},
		"that the pod does not name": {func(p *corev1.Pod) { p.Spec.ResourceClaims[0].ResourceClaimTemplateName = nil }, func(ref events.Ref) metav1.Object {
			t.Errorf("%v is read", ref)
			return nil
		}, false, false},
		"that the pod names second": {func(p *corev1.Pod) {
			other := "other"
			p.Spec.ResourceClaims = append([]corev1.PodResourceClaim{{Name: "first", ResourceClaimTemplateName: &other}}, p.Spec.ResourceClaims...)
		}, asks, true, false},
	} {
		h := made()
		h.read = c.read
		pod, ok := h.own.(*corev1.Pod)
		if !ok {
			t.Fatalf("the turn is about %T", h.own)
		}
		c.pod(pod)
		if err := h.fits(h.command); (err == nil) != c.fits || errors.Is(err, events.ErrSuperseded) != c.stale {
			t.Errorf("a claim of a template %s: %v", what, err)
		}
	}
}

// firstOf returns the first command of a controller's stories for which so is true. so may change it.
func firstOf(t *testing.T, name string, so func(*honest) bool) honest {
	t.Helper()
	c, ok := named(t, name)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	for _, h := range told(t, c) {
		if so(&h) {
			return h
		}
	}
	t.Fatalf("no story of %s has such a command", name)
	return honest{}
}
