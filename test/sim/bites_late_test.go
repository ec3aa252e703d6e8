package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/attachdetach"
	"github.com/millrace/millrace/services/reconcilers/controllers/bootstrapsigner"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrcleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrsigning"
	"github.com/millrace/millrace/services/reconcilers/controllers/devicetainteviction"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodeipam"
	"github.com/millrace/millrace/services/reconcilers/controllers/persistentvolumebinder"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgroupprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourceclaim"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcepoolstatusrequest"
	"github.com/millrace/millrace/services/reconcilers/controllers/selinuxwarning"
	"github.com/millrace/millrace/services/reconcilers/controllers/servicecidr"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversionmigrator"
	"github.com/millrace/millrace/services/reconcilers/controllers/tokencleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/volumeexpander"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim"
	"github.com/millrace/millrace/test/sim/world"
)

// instead is a cast in which one controller is replaced.
func instead(cast []reconcile.Any, other reconcile.Any) []reconcile.Any {
	for i, c := range cast {
		if c.Describe().Name == other.Describe().Name {
			cast[i] = other
		}
	}
	return cast
}

// bold is a controller whose writer checks nothing before it writes.
func bold[V any](c reconcile.Controller[V], wrong func(v *V, now time.Time)) reconcile.Any {
	c.Writes = slices.Clone(c.Writes)
	for i := range c.Writes {
		c.Writes[i].Unused, c.Writes[i].Unshared = false, false
	}
	decide := c.Decide
	c.Decide = func(v V, now time.Time) reconcile.Decision {
		wrong(&v, now)
		d := decide(v, now)
		for i, command := range d.Commands {
			if command.If != nil {
				condition := *command.If
				condition.Unused, condition.Unshared = false, false
				d.Commands[i].If = &condition
			}
		}
		return d
	}
	return c
}

// bite is a mistake of one controller in a shape, and the rule that must detect it.
type bite struct {
	shape, rule string
	wrong       reconcile.Any
}

// bites fails unless the rules detect every mistake.
func bites(t *testing.T, all map[string]bite) {
	for name, b := range all {
		t.Run(name, func(t *testing.T) {
			notices(t, b.shape, b.rule, instead(shapes[b.shape].controllers(), b.wrong)...)
		})
	}
}

func TestItBitesBindings(t *testing.T) {
	type view = persistentvolumebinder.View
	binder := func(wrong func(v *view, now time.Time)) reconcile.Any {
		return mistaken(persistentvolumebinder.Controller, wrong)
	}
	bites(t, map[string]bite{
		"a volume of another claim is taken": {"storage, calm", "V1", binder(func(v *view, _ time.Time) {
			if v.Named != nil && v.Named.Spec.ClaimRef != nil && v.Named.Spec.ClaimRef.UID != v.Claim.UID {
				v.Named = v.Named.DeepCopy()
				v.Named.Spec.ClaimRef = nil
			}
		})},
		"a volume is too small": {"storage, calm", "V1", binder(func(v *view, _ time.Time) {
			if v.Claim != nil {
				v.Claim = v.Claim.DeepCopy()
				v.Claim.Spec.Resources.Requests = nil
			}
		})},
		"a claim that is there is gone": {"storage, calm", "V2", binder(func(v *view, now time.Time) {
			v.Holder, v.Live = nil, &persistentvolumebinder.Live{At: now}
		})},
		"a volume that is there is gone": {"storage, calm", "V2", binder(func(v *view, now time.Time) {
			v.Named, v.Live = nil, &persistentvolumebinder.Live{At: now}
		})},
		"no claim finds a volume": {"storage, calm", "I1 ", binder(func(v *view, _ time.Time) { v.Volumes = nil })},
		"no volume is given back": {"storage, calm", "I1 ", binder(func(v *view, _ time.Time) {
			if v.Holder != nil && v.Volume != nil && v.Holder.Spec.VolumeName != v.Volume.Name {
				v.Holder = v.Holder.DeepCopy()
				v.Holder.Spec.VolumeName = ""
			}
		})},
		"nothing grows": {"storage, calm", "I1 ", mistaken(volumeexpander.Controller, func(v *volumeexpander.View, _ time.Time) { v.Volume = nil })},
	})
}

func TestItBitesAttachments(t *testing.T) {
	type view = attachdetach.View
	attacher := func(wrong func(v *view, now time.Time)) reconcile.Any {
		return mistaken(attachdetach.Controller, wrong)
	}
	bites(t, map[string]bite{
		"six minutes are over at once": {"storage, calm", "V3", attacher(func(v *view, now time.Time) {
			v.Since = map[types.UID]time.Time{}
			for _, h := range v.Held {
				v.Since[h.Attachment.UID] = now.Add(-time.Hour)
			}
		})},
		"a volume for one node is on two": {"storage, calm", "V4", attacher(func(v *view, _ time.Time) {
			if v.Volume != nil {
				v.Volume = v.Volume.DeepCopy()
				v.Volume.Spec.AccessModes = nil
			}
		})},
		"a volume goes where no pod is": {"storage, calm", "V4", attacher(func(v *view, _ time.Time) {
			for i, p := range v.Pods {
				v.Pods[i] = p.DeepCopy()
				v.Pods[i].Spec.NodeName = map[string]string{"node-0": "node-1", "node-1": "node-0"}[p.Spec.NodeName]
			}
		})},
		"what a node uses does not count": {"storage, calm", "V3", attacher(func(v *view, _ time.Time) {
			if v.Node != nil {
				v.Node = v.Node.DeepCopy()
				v.Node.Status.VolumesInUse = nil
			}
		})},
		"a volume is detached before its node says so": {"storage, calm", "V5", attacher(unlisted)},
		"nothing is detached": {"storage, calm", "I1 ", attacher(func(v *view, _ time.Time) {
			for i := range v.Held {
				v.Held[i].Wanted = true
			}
		})},
		"nothing is attached": {"storage, calm", "I1 ", attacher(func(v *view, _ time.Time) { v.Pods = nil })},
	})
}

// unlisted has a node's status list nothing any more that is to be detached from it, which it does.
func unlisted(v *attachdetach.View, _ time.Time) {
	if v.Node == nil {
		return
	}
	leaves := func(h attachdetach.Held) bool {
		return !h.Wanted && h.Attachment.DeletionTimestamp == nil && !slices.Contains(v.Node.Status.VolumesInUse, h.Volume)
	}
	v.Node = v.Node.DeepCopy()
	v.Node.Status.VolumesAttached = slices.DeleteFunc(v.Node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
		return slices.ContainsFunc(v.Held, func(h attachdetach.Held) bool { return h.Volume == a.Name && leaves(h) })
	})
}

func TestItBitesNodeRanges(t *testing.T) {
	type view = nodeipam.View
	bites(t, map[string]bite{
		"ranges of other nodes are free": {"node ranges, calm", "N1", bold(nodeipam.New(ranged()), func(v *view, _ time.Time) {
			v.Nodes = slices.DeleteFunc(v.Nodes, func(n nodeipam.Node) bool { return len(n.Ranges) > 0 })
		})},
		"a node gets none": {"node ranges, calm", "I1 ", mistaken(nodeipam.New(ranged()), func(v *view, _ time.Time) {
			v.Nodes = v.Nodes[:min(len(v.Nodes), 1)]
		})},
	})
}

// signsAs is a controller that has a signer sign every request, whatever it asks for, and that
// promises nothing about it.
func signsAs(by string) reconcile.Any {
	c := csrsigning.New(signers)
	c.Writes = slices.Clone(c.Writes)
	c.Writes[0].Copies = nil
	decide := c.Decide
	c.Decide = func(v csrsigning.View, now time.Time) reconcile.Decision {
		v.Signs = true
		d := decide(v, now)
		for i := range d.Commands {
			d.Commands[i] = reconcile.Certify(v.Request, by)
		}
		return d
	}
	return c
}

func TestItBitesCertificates(t *testing.T) {
	signer := func(wrong func(v *csrsigning.View, now time.Time)) reconcile.Any {
		return mistaken(csrsigning.New(signers), wrong)
	}
	bites(t, map[string]bite{
		"what is not approved is signed": {"certificates, calm", "C2", signer(func(v *csrsigning.View, _ time.Time) {
			v.Request = v.Request.DeepCopy()
			v.Request.Status.Conditions = append(v.Request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue})
		})},
		"what was denied is signed": {"certificates, calm", "C2", signer(func(v *csrsigning.View, _ time.Time) {
			v.Request = v.Request.DeepCopy()
			for i := range v.Request.Status.Conditions {
				v.Request.Status.Conditions[i].Type = certificatesv1.CertificateApproved
			}
		})},
		"nothing is signed":                {"certificates, calm", "I1 ", signer(func(v *csrsigning.View, _ time.Time) { v.Signs = false })},
		"another signer signs":             {"certificates, calm", "C2", signsAs(csr.LegacyUnknown)},
		"another signer refuses":           {"certificates, calm", "C2", signsAs(csr.KubeletServing)},
		"requests are signed as another's": {"certificates, calm", "I1 ", mistaken(csrsigning.New(signers), otherSigner)},
		"a request goes early": {"certificates, calm", "C2", mistaken(csrcleaner.Controller, func(v *csrcleaner.View, now time.Time) {
			v.Request = v.Request.DeepCopy()
			v.Request.CreationTimestamp = metav1.NewTime(now.Add(-25 * time.Hour))
		})},
	})
}

// otherSigner treats requests as another signer's. The writer signs none of them, since the
// promise lacks them.
func otherSigner(v *csrsigning.View, _ time.Time) {
	v.Request = v.Request.DeepCopy()
	v.Request.Spec.SignerName = csr.LegacyUnknown
}

func TestItBitesDevices(t *testing.T) {
	type view = resourceclaim.View
	claims := func(wrong func(v *view, now time.Time)) reconcile.Any {
		return mistaken(resourceclaim.Controller, wrong)
	}
	bites(t, map[string]bite{
		"pods that are not seen are gone": {"devices, calm", "D1", claims(func(v *view, now time.Time) {
			if v.Claim != nil {
				v.Live, v.At = map[string]types.UID{}, now
				for _, p := range v.Pods {
					v.Live[p.Name] = ""
				}
				v.Pods = nil
			}
		})},
		"no claim is taken back": {"devices, calm", "I1 ", claims(func(v *view, _ time.Time) {
			if v.Claim != nil {
				v.Claim = v.Claim.DeepCopy()
				v.Claim.Status.ReservedFor = nil
			}
		})},
		"no claim is made": {"devices, calm", "I1 ", claims(func(v *view, _ time.Time) { v.Templates = nil })},
		"pods leave devices at once": {"devices, calm", "D2", mistaken(devicetainteviction.New(rules), func(v *devicetainteviction.View, _ time.Time) {
			for i := range v.Devices {
				v.Devices[i].Tolerations = nil
			}
		})},
		"no pod leaves its devices": {"devices, calm", "I1 ", mistaken(devicetainteviction.New(rules), func(v *devicetainteviction.View, _ time.Time) { v.Devices = nil })},
	})
}

func TestItBitesJoins(t *testing.T) {
	cleaner := func(wrong func(v *tokencleaner.View, now time.Time)) reconcile.Any {
		return mistaken(tokencleaner.Controller, wrong)
	}
	bites(t, map[string]bite{
		"a token goes early": {"joins, calm", "A7", cleaner(func(v *tokencleaner.View, now time.Time) {
			if v.Expiry != nil && v.Expiry.At != nil {
				v.Expiry = &query.Expiry{At: &now}
			}
		})},
		"what is no token goes": {"joins, calm", "A7", cleaner(func(v *tokencleaner.View, now time.Time) {
			if v.Expiry != nil && v.Expiry.Other {
				v.Expiry = &query.Expiry{At: &now}
			}
		})},
		"no token goes": {"joins, calm", "I1 ", cleaner(func(v *tokencleaner.View, _ time.Time) { v.Expiry = &query.Expiry{Other: true} })},
		"nothing is signed": {"joins, calm", "I1 ", mistaken(bootstrapsigner.Controller, func(v *bootstrapsigner.View, _ time.Time) {
			v.Signed, v.Until = true, nil
		})},
		"a signature outlives a token that goes": {"joins, calm", "I1 ", forgetful()},
		"a signature outlives a token that expires": {"signatures", "I1 ", mistaken(bootstrapsigner.Controller, func(v *bootstrapsigner.View, _ time.Time) {
			v.Until = nil
		})},
	})
}

// forgetful is the signer of cluster-info that does not notice deleted tokens.
func forgetful() reconcile.Any {
	c := bootstrapsigner.Controller
	c.Inputs = slices.Clone(c.Inputs)
	for i, in := range c.Inputs {
		c.Inputs[i].Keys = func(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
			if now.None() {
				return nil
			}
			return in.Keys(s, was, now)
		}
	}
	return c
}

func TestItBitesGroups(t *testing.T) {
	bites(t, map[string]bite{
		"a group goes before its pods":      {"groups, calm", "I12", bold(podgroupprotection.Controller, func(v *podgroupprotection.View, _ time.Time) { v.Pod = "" })},
		"no group goes":                     {"groups, calm", "I1 ", bold(podgroupprotection.Controller, func(v *podgroupprotection.View, _ time.Time) { v.Pod = "p" })},
		"a range goes before its addresses": {"groups, calm", "I12", bold(servicecidr.Controller, func(v *servicecidr.View, _ time.Time) { v.Address = "" })},
		"no range goes": {"groups, calm", "I1 ", bold(servicecidr.Controller, func(v *servicecidr.View, _ time.Time) {
			if v.ServiceCIDR.DeletionTimestamp != nil {
				v.Address = "10.96.0.5"
			}
		})},
	})
}

func TestItBitesMigrations(t *testing.T) {
	migrator := func(wrong func(v *storageversionmigrator.View, now time.Time)) reconcile.Any {
		return mistaken(storageversionmigrator.Controller, wrong)
	}
	bites(t, map[string]bite{
		"objects are left out": {"migrations, calm", "M1", migrator(func(v *storageversionmigrator.View, _ time.Time) {
			if v.Objects != nil && len(v.Objects.Objects) > 0 {
				objects := *v.Objects
				objects.Objects = objects.Objects[1:]
				v.Objects = &objects
			}
		})},
		"the first page is all": {"migrations, calm", "M1", migrator(func(v *storageversionmigrator.View, _ time.Time) {
			if v.Objects != nil {
				objects := *v.Objects
				objects.More = ""
				v.Objects = &objects
			}
		})},
		"it never ends": {"migrations, calm", "I1 ", migrator(func(v *storageversionmigrator.View, _ time.Time) { v.Ahead = "another" })},
	})
}

func TestItBitesLabels(t *testing.T) {
	type view = selinuxwarning.View
	warner := func(wrong func(v *view, now time.Time)) reconcile.Any {
		return mistaken(selinuxwarning.Controller, wrong)
	}
	bites(t, map[string]bite{
		"pods that agree are warned": {"labels, calm", "W1", warner(func(v *view, _ time.Time) {
			for i, u := range v.Uses {
				v.Uses[i].Pod = u.Pod.DeepCopy()
				v.Uses[i].Pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: u.Pod.Name}}
			}
		})},
		"it does not matter what a driver mounts": {"labels, calm", "W1", warner(func(v *view, _ time.Time) { v.Mounts = true })},
		"a pod that is gone is warned of": {"labels, calm", "W1", warner(func(v *view, _ time.Time) {
			if len(v.Uses) == 1 {
				other := v.Uses[0].Pod.DeepCopy()
				other.Name, other.UID, other.Spec.SecurityContext, other.Spec.Containers[0].SecurityContext = "gone", "uid-gone", nil, nil
				v.Uses = append(v.Uses[:1:1], selinuxwarning.Use{Pod: other, Volumes: v.Uses[0].Volumes})
			}
		})},
		"no pod is warned of another one":  {"labels, calm", "I1 ", warner(func(v *view, _ time.Time) { v.Uses = nil })},
		"no pod is told of its containers": {"labels, calm", "I1 ", warner(func(v *view, _ time.Time) { v.Found = nil })},
		"pods are warned again and again":  {"labels, calm", "W2", warner(func(v *view, _ time.Time) { v.Known = nil })},
		"containers are told of again":     {"labels, calm", "W2", warner(func(v *view, _ time.Time) { v.Told = nil })},
	})
}

func TestItBitesPools(t *testing.T) {
	type view = resourcepoolstatusrequest.View
	counter := func(wrong func(v *view, now time.Time)) reconcile.Any {
		return mistaken(resourcepoolstatusrequest.Controller, wrong)
	}
	each := func(wrong func(p *resourcepoolstatusrequest.Pool)) reconcile.Any {
		return counter(func(v *view, _ time.Time) {
			for i := range v.Pools {
				wrong(&v.Pools[i])
			}
		})
	}
	aged := func(v *view, at metav1.Time) {
		v.Request = v.Request.DeepCopy()
		if v.Request.CreationTimestamp = at; v.Request.Status != nil {
			v.Request.Status.Conditions[0].LastTransitionTime = at
		}
	}
	bites(t, map[string]bite{
		"an answer does not wait for slices":   {"pools, calm", "P2", each(func(p *resourcepoolstatusrequest.Pool) { p.Expected = 0 })},
		"devices that are taken do not count":  {"pools, calm", "P2", each(func(p *resourcepoolstatusrequest.Pool) { p.Allocated = 0 })},
		"an answer tells of an old generation": {"pools, calm", "P2", each(func(p *resourcepoolstatusrequest.Pool) { p.Generation = 1 })},
		"a request is answered again": {"pools, calm", "P1", counter(func(v *view, _ time.Time) {
			v.Request = v.Request.DeepCopy()
			v.Request.Status = nil
		})},
		"no request is answered": {"pools, calm", "I1 ", counter(func(v *view, _ time.Time) {
			v.Pools = []resourcepoolstatusrequest.Pool{{Expected: 1}}
		})},
		"a request goes early": {"pools, calm", "P3", counter(func(v *view, now time.Time) { aged(v, metav1.NewTime(now.Add(-25*time.Hour))) })},
		"no request goes":      {"pools, calm", "I1 ", counter(func(v *view, _ time.Time) { aged(v, metav1.Time{}) })},
	})
}

// Bugs that users of Kubernetes met; the numbers are those of kubernetes/kubernetes. Logic with
// the bug and Millrace's logic play the same script, and the bug must not show in Millrace's.
func TestTheSieveBitesBugsThatWere(t *testing.T) {
	type volumes = persistentvolumebinder.View
	type claims = resourceclaim.View
	for name, tc := range map[string]struct {
		rule  string
		wrong reconcile.Any
	}{
		// 66287: the scheduler had chosen a volume for a claim that the binder had not heard of,
		// which took the claim for gone.
		"claims are heard of late": {"V2", mistaken(persistentvolumebinder.Controller, func(v *volumes, now time.Time) {
			if v.Volume != nil && v.Holder == nil {
				v.Live = &persistentvolumebinder.Live{At: now}
			}
		})},
		// 105131: the binder had heard of the claim before it, which had its name.
		"a claim comes again and is heard of late": {"V2", mistaken(persistentvolumebinder.Controller, func(v *volumes, now time.Time) {
			if v.Holder != nil && v.Volume.Spec.ClaimRef.UID != v.Holder.UID {
				v.Live = &persistentvolumebinder.Live{At: now}
			}
		})},
		// The same of pods and devices.
		"pods are heard of late": {"D1", mistaken(resourceclaim.Controller, func(v *claims, now time.Time) {
			if v.Claim != nil && len(v.Pods) == 0 {
				v.Live, v.At = map[string]types.UID{}, now
				for _, by := range v.Claim.Status.ReservedFor {
					v.Live[by.Name] = ""
				}
			}
		})},
		// 27836: a detachment began before the node's status said so, and the kubelet mounted what
		// the status still listed.
		"a pod comes again on its node": {"V5", mistaken(attachdetach.Controller, unlisted)},
		// 21458, 29058: what was given and not seen yet was given again.
		"a node comes again with other ranges": {"N1", bold(nodeipam.New(ranged()), func(v *nodeipam.View, _ time.Time) {
			v.Memory = nodeipam.Memory{}
			v.Nodes = slices.DeleteFunc(v.Nodes, func(n nodeipam.Node) bool { return len(n.Ranges) > 0 && n.Name == "node-1" })
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := sim.LateScenarios()
			s := all[slices.IndexFunc(all, func(s sim.Scenario) bool { return s.Name == name })]
			if _, err := sim.Play(s, world.Options{Mute: true}, cast(s)); err != nil {
				t.Fatalf("ours: %v", err)
			}
			if _, err := sim.Play(s, world.Options{Mute: true}, instead(cast(s), tc.wrong)); err == nil || !strings.Contains(err.Error(), tc.rule) {
				t.Errorf("nothing was noticed: %v", err)
			}
		})
	}
}
