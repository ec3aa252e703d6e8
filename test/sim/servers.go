package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// Servers is what API servers do that start, stop and record how they store objects, and what
// administrators do with admission policies.
var Servers = []Operation{
	startServer, startServer, startServer, stopServer, stopServer, writeDown, writeDown, writeDown, writeDown, writeDown, renameServer,
	newPolicy, newPolicy, changePolicy, changePolicy, touchPolicy, dropPolicy,
}

// component is the label of a lease that names the component whose identity it is.
const component = "apiserver.kubernetes.io/identity"

func serverRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Leases.Name, Namespace: metav1.NamespaceSystem, Name: name}
}

func storageRef(name string) events.Ref {
	return events.Ref{Kind: kinds.StorageVersions.Name, Name: name}
}

func (w *World) anyServer() events.Ref { return serverRef(fmt.Sprint("server-", w.roll(4))) }

// serves reports whether an API server has its identity lease.
func (w *World) serves(server string) (*coordinationv1.Lease, bool) {
	lease, ok := w.api.Get(serverRef(server)).(*coordinationv1.Lease)
	return lease, ok && lease.Labels[component] == "kube-apiserver"
}

func startServer(w *World) {
	ref := w.anyServer()
	if w.api.Get(ref) == nil {
		w.note("API server %s starts", ref.Name)
		w.create(ref, &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, Labels: map[string]string{component: "kube-apiserver"}},
		})
	}
	w.pass()
}

func stopServer(w *World) {
	if ref := w.anyServer(); w.api.Get(ref) != nil {
		w.note("API server %s is gone", ref.Name)
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// renameServer makes a lease the identity of another component, or of an API server again.
func renameServer(w *World) {
	ref := w.anyServer()
	if lease, ok := w.api.Get(ref).(*coordinationv1.Lease); ok {
		of := "kube-apiserver"
		if lease.Labels[component] == of {
			of = "kube-scheduler"
		}
		w.note("lease %s is of a %s", ref.Name, of)
		w.api.Change(ref, func(obj metav1.Object) { obj.SetLabels(map[string]string{component: of}) })
	}
}

// writeDown has a running API server record in which version it stores a resource.
func writeDown(w *World) {
	server := w.anyServer().Name
	if _, ok := w.serves(server); !ok {
		startServer(w)
		return
	}
	ref, version := storageRef(fmt.Sprint("example.com.things", w.roll(2))), fmt.Sprint("v", 1+w.roll(2))
	entry := apiserverinternalv1alpha1.ServerStorageVersion{APIServerID: server, EncodingVersion: version, DecodableVersions: []string{version}}
	w.note("API server %s stores %s as %s", server, ref.Name, version)
	if w.api.Get(ref) == nil {
		w.create(ref, &apiserverinternalv1alpha1.StorageVersion{
			TypeMeta:   metav1.TypeMeta{APIVersion: "internal.apiserver.k8s.io/v1alpha1", Kind: "StorageVersion"},
			ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		})
	}
	w.api.Change(ref, func(obj metav1.Object) {
		all := &obj.(*apiserverinternalv1alpha1.StorageVersion).Status
		its := func(s apiserverinternalv1alpha1.ServerStorageVersion) bool { return s.APIServerID == server }
		all.StorageVersions = append(slices.DeleteFunc(all.StorageVersions, its), entry)
		all.CommonEncodingVersion = commonVersion(all.StorageVersions)
	})
}

// commonVersion is the version in which all servers store objects; nil if they differ.
func commonVersion(all []apiserverinternalv1alpha1.ServerStorageVersion) *string {
	if len(all) == 0 || slices.ContainsFunc(all, func(s apiserverinternalv1alpha1.ServerStorageVersion) bool {
		return s.EncodingVersion != all[0].EncodingVersion
	}) {
		return nil
	}
	return &all[0].EncodingVersion
}

// leased reports whether an API server has its lease.
func (w *World) leased(server string) bool {
	_, serves := w.serves(server)
	return serves
}

// forgets checks the reads of leases, and the writes of a StorageVersion: a server that is
// removed had no lease when asked for, since the StorageVersion last changed.
func (g *guard) forgets(c *carrying, r plan.Request) {
	if r.Kind == kinds.Leases.Name && r.Verb == plan.Read && !g.world.leased(r.Name) {
		g.missed[r.Name] = g.world.api.version
	}
	now, ok := g.world.api.Get(storageRef(r.Name)).(*apiserverinternalv1alpha1.StorageVersion)
	if r.Kind != kinds.StorageVersions.Name || !r.Verb.Writes() || !ok {
		return
	}
	var next apiserverinternalv1alpha1.StorageVersion
	switch {
	case r.Delete != nil:
		if v := r.Delete.Preconditions.ResourceVersion; v != nil && *v != now.ResourceVersion {
			return // the API server will refuse it
		}
	case json.Unmarshal(r.Body, &next) != nil || next.ResourceVersion != now.ResourceVersion:
		return
	}
	for _, s := range now.Status.StorageVersions {
		its := func(o apiserverinternalv1alpha1.ServerStorageVersion) bool { return o.APIServerID == s.APIServerID }
		if at := g.missed[s.APIServerID]; !slices.ContainsFunc(next.Status.StorageVersions, its) && at < number(now.ResourceVersion) {
			g.breaks("A4", "turn %d takes %s out of version %s of %s, and was never told that it is gone", c.sequence, s.APIServerID, now.ResourceVersion, r.Name)
		}
	}
}

// Admission policies have one expression, which is valid unless it is this one.
const misfit = "object.nothing == 1"

func (w *World) somePolicy() (events.Ref, bool) {
	return w.someOf(kinds.ValidatingAdmissionPolicies.Kind, "policy", func(name string) any {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{Validations: w.anyExpression()},
		}
	})
}

func (w *World) anyExpression() []admissionregistrationv1.Validation {
	return []admissionregistrationv1.Validation{{Expression: []string{misfit, fmt.Sprint("object.spec.replicas > ", w.roll(9))}[w.roll(2)]}}
}

func newPolicy(w *World) { w.somePolicy() }

func changePolicy(w *World) {
	if ref, there := w.somePolicy(); there {
		next := w.anyExpression()
		w.note("user: %v says %s", ref, next[0].Expression)
		w.api.Change(ref, func(obj metav1.Object) {
			obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec.Validations = next
		})
	}
}

func touchPolicy(w *World) {
	if ref, there := w.somePolicy(); there {
		w.Annotate(ref, fmt.Sprint(w.tally.Steps))
	}
}

func dropPolicy(w *World) {
	if ref, there := w.somePolicy(); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// misfits is the type checker's findings in a policy.
func misfits(p *admissionregistrationv1.ValidatingAdmissionPolicy) (all []admissionregistrationv1.ExpressionWarning) {
	for i, v := range p.Spec.Validations {
		if v.Expression == misfit {
			all = append(all, admissionregistrationv1.ExpressionWarning{FieldRef: fmt.Sprintf("spec.validations[%d].expression", i), Warning: "undefined field"})
		}
	}
	return all
}

// typesOf is the writer's answer about a policy, which must still be as it was when it was
// asked about.
func typesOf(now metav1.Object, body []byte) plan.Response {
	var p admissionregistrationv1.ValidatingAdmissionPolicy
	if err := json.Unmarshal(body, &p); err != nil {
		return refusal(400, "BadRequest", err.Error())
	}
	r := answer(now)
	r.Body, _ = json.Marshal(query.Types{Warnings: misfits(&p)}) // it has only fields that encoding/json accepts
	return r
}

// writtenDown reports whether every StorageVersion names running API servers only, and every
// policy has its type check.
func (w *World) writtenDown() error {
	for _, obj := range w.api.List(kinds.StorageVersions.Name) {
		sv := obj.(*apiserverinternalv1alpha1.StorageVersion)
		for _, s := range sv.Status.StorageVersions {
			if _, serves := w.serves(s.APIServerID); !serves {
				return fmt.Errorf("%s still has %s, which is gone", sv.Name, s.APIServerID)
			}
		}
		said, want := sv.Status.CommonEncodingVersion, commonVersion(sv.Status.StorageVersions)
		if (said == nil) != (want == nil) || said != nil && *said != *want {
			return fmt.Errorf("%s is not in the version that its servers have in common: %+v", sv.Name, sv.Status)
		}
	}
	for _, obj := range w.api.List(kinds.ValidatingAdmissionPolicies.Name) {
		p := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		var said []string
		if p.Status.TypeChecking != nil {
			for _, warning := range p.Status.TypeChecking.ExpressionWarnings {
				said = append(said, warning.FieldRef)
			}
		}
		if want := misfits(p); p.Status.ObservedGeneration != p.Generation || len(said) != len(want) {
			return fmt.Errorf("%s of generation %d says of generation %d: %s; and what does not fit is %v", p.Name, p.Generation, p.Status.ObservedGeneration, strings.Join(said, ", "), want)
		}
	}
	return nil
}
