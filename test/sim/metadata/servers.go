package metadata

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
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Servers is what API servers do that start, stop and record how they store objects, and what
// administrators do with admission policies.
var Servers = []cluster.Operation{
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

func anyServer(w *cluster.Cluster) events.Ref { return serverRef(fmt.Sprint("server-", w.Roll(4))) }

// serves reports whether an API server has its identity lease.
func serves(w *cluster.Cluster, server string) (*coordinationv1.Lease, bool) {
	lease, ok := w.API.Get(serverRef(server)).(*coordinationv1.Lease)
	return lease, ok && lease.Labels[component] == "kube-apiserver"
}

func startServer(w *cluster.Cluster) {
	ref := anyServer(w)
	if w.API.Get(ref) == nil {
		w.Note("API server %s starts", ref.Name)
		w.Create(ref, &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, Labels: map[string]string{component: "kube-apiserver"}},
		})
	}
	cluster.Pass(w)
}

func stopServer(w *cluster.Cluster) {
	if ref := anyServer(w); w.API.Get(ref) != nil {
		w.Note("API server %s is gone", ref.Name)
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// renameServer makes a lease the identity of another component, or of an API server again.
func renameServer(w *cluster.Cluster) {
	ref := anyServer(w)
	if lease, ok := w.API.Get(ref).(*coordinationv1.Lease); ok {
		of := "kube-apiserver"
		if lease.Labels[component] == of {
			of = "kube-scheduler"
		}
		w.Note("lease %s is of a %s", ref.Name, of)
		w.API.Change(ref, func(obj metav1.Object) { obj.SetLabels(map[string]string{component: of}) })
	}
}

// writeDown has a running API server record in which version it stores a resource.
func writeDown(w *cluster.Cluster) {
	server := anyServer(w).Name
	if _, ok := serves(w, server); !ok {
		startServer(w)
		return
	}
	ref, version := storageRef(fmt.Sprint("example.com.things", w.Roll(2))), fmt.Sprint("v", 1+w.Roll(2))
	entry := apiserverinternalv1alpha1.ServerStorageVersion{APIServerID: server, EncodingVersion: version, DecodableVersions: []string{version}}
	w.Note("API server %s stores %s as %s", server, ref.Name, version)
	if w.API.Get(ref) == nil {
		w.Create(ref, &apiserverinternalv1alpha1.StorageVersion{
			TypeMeta:   metav1.TypeMeta{APIVersion: "internal.apiserver.k8s.io/v1alpha1", Kind: "StorageVersion"},
			ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		})
	}
	w.API.Change(ref, func(obj metav1.Object) {
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

// Leased reports whether an API server has its lease.
func Leased(w *cluster.Cluster, server string) bool {
	_, serves := serves(w, server)
	return serves
}

// Forgets checks the reads of leases, and the writes of a StorageVersion: a server that is
// removed had no lease when asked for, since the StorageVersion last changed.
func Forgets(g *cluster.Guard, c *cluster.Taken, r plan.Request) {
	if r.Kind == kinds.Leases.Name && r.Verb == plan.Read && !Leased(g.World, r.Name) {
		g.Metadata.Missed[r.Name] = g.World.API.Version
	}
	now, ok := g.World.API.Get(storageRef(r.Name)).(*apiserverinternalv1alpha1.StorageVersion)
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
		if at := g.Metadata.Missed[s.APIServerID]; !slices.ContainsFunc(next.Status.StorageVersions, its) && at < apiserver.Number(now.ResourceVersion) {
			g.Breaks("A4", "turn %d takes %s out of version %s of %s, and was never told that it is gone", c.Sequence, s.APIServerID, now.ResourceVersion, r.Name)
		}
	}
}

func somePolicy(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.ValidatingAdmissionPolicies.Kind, "policy", func(name string) any {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{Validations: anyExpression(w)},
		}
	})
}

func anyExpression(w *cluster.Cluster) []admissionregistrationv1.Validation {
	return []admissionregistrationv1.Validation{{Expression: []string{apiserver.Misfit, fmt.Sprint("object.spec.replicas > ", w.Roll(9))}[w.Roll(2)]}}
}

func newPolicy(w *cluster.Cluster) { somePolicy(w) }

func changePolicy(w *cluster.Cluster) {
	if ref, there := somePolicy(w); there {
		next := anyExpression(w)
		w.Note("user: %v says %s", ref, next[0].Expression)
		w.API.Change(ref, func(obj metav1.Object) {
			obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec.Validations = next
		})
	}
}

func touchPolicy(w *cluster.Cluster) {
	if ref, there := somePolicy(w); there {
		w.Annotate(ref, fmt.Sprint(w.Counts.Steps))
	}
}

func dropPolicy(w *cluster.Cluster) {
	if ref, there := somePolicy(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// WrittenDown reports whether every StorageVersion names running API servers only, and every
// policy has its type check.
func WrittenDown(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.StorageVersions.Name) {
		sv := obj.(*apiserverinternalv1alpha1.StorageVersion)
		for _, s := range sv.Status.StorageVersions {
			if _, serves := serves(w, s.APIServerID); !serves {
				return fmt.Errorf("%s still has %s, which is gone", sv.Name, s.APIServerID)
			}
		}
		said, want := sv.Status.CommonEncodingVersion, commonVersion(sv.Status.StorageVersions)
		if (said == nil) != (want == nil) || said != nil && *said != *want {
			return fmt.Errorf("%s is not in the version that its servers have in common: %+v", sv.Name, sv.Status)
		}
	}
	for _, obj := range w.API.List(kinds.ValidatingAdmissionPolicies.Name) {
		p := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		var said []string
		if p.Status.TypeChecking != nil {
			for _, warning := range p.Status.TypeChecking.ExpressionWarnings {
				said = append(said, warning.FieldRef)
			}
		}
		if want := apiserver.Misfits(p); p.Status.ObservedGeneration != p.Generation || len(said) != len(want) {
			return fmt.Errorf("%s of generation %d says of generation %d: %s; and what does not fit is %v", p.Name, p.Generation, p.Status.ObservedGeneration, strings.Join(said, ", "), want)
		}
	}
	return nil
}
