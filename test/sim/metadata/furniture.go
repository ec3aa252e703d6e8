package metadata

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Furnished reports whether every namespace has its account and its certificate.
func Furnished(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.Namespaces.Name) {
		name := obj.GetName()
		if obj.GetDeletionTimestamp() != nil {
			return fmt.Errorf("namespace %s is still on its way out", name)
		}
		if w.API.Get(events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: name, Name: "default"}) == nil {
			return fmt.Errorf("namespace %s has no default service account", name)
		}
		published, ok := w.API.Get(CertificateOf(name)).(*corev1.ConfigMap)
		if !ok || published.Data["ca.crt"] != RootCA {
			return fmt.Errorf("namespace %s has no certificate, or a wrong one", name)
		}
	}
	return nil
}

// RootCA is the certificate that every namespace of a simulated cluster is to
// have.
const RootCA = "-----BEGIN CERTIFICATE-----\nsimulated\n-----END CERTIFICATE-----\n"

// CertificateOf is the place of the certificate of a namespace.
func CertificateOf(namespace string) events.Ref {
	return events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: namespace, Name: "kube-root-ca.crt"}
}

// Furniture is what users do with namespaces and their default content.
var Furniture = []cluster.Operation{newNamespace, newNamespace, tamperCertificate, deleteFurniture}

func newNamespace(w *cluster.Cluster) {
	ref := events.Ref{Kind: kinds.Namespaces.Name, Name: fmt.Sprintf("ns%d", w.Roll(3))}
	if w.API.Get(ref) == nil {
		w.Note("user: create namespace %s", ref.Name)
		w.Namespace(ref.Name)
	}
}

func tamperCertificate(w *cluster.Cluster) {
	if all := w.API.List(kinds.ConfigMaps.Name); len(all) > 0 {
		Forge(w, all[w.Roll(len(all))].GetNamespace())
	}
}

func deleteFurniture(w *cluster.Cluster) {
	kind := []kinds.Name{kinds.ServiceAccounts.Name, kinds.ConfigMaps.Name}[w.Roll(2)]
	if all := w.API.List(kind); len(all) > 0 {
		w.Delete(apiserver.RefOf(kind, all[w.Roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

// Forge puts a wrong certificate into a namespace.
func Forge(w *cluster.Cluster, namespace string) {
	w.Note("foreign: a wrong certificate in %s", namespace)
	w.API.Change(CertificateOf(namespace), func(obj metav1.Object) { obj.(*corev1.ConfigMap).Data = map[string]string{"ca.crt": "forged"} })
}
