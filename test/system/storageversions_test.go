package system

import (
	"fmt"
	"testing"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
)

// TestAPIServersThatAreGone: the storage versions of an API server are deleted with its lease, and those of a
// live API server stay.
func TestAPIServersThatAreGone(t *testing.T) {
	t.Parallel()
	const gates = "--feature-gates=APIServerIdentity=true,StorageVersionAPI=true"
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{}, gates, "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Stop()) })
	s.run(t, gates)
	versions, leases := s.kube.InternalV1alpha1().StorageVersions(), s.kube.CoordinationV1().Leases(metav1.NamespaceSystem)

	var living string
	within(t, patience, "the API server has written down how it stores Deployments", func() string {
		sv, err := versions.Get(t.Context(), "apps.deployments", metav1.GetOptions{})
		if err == nil && len(sv.Status.StorageVersions) == 0 {
			return "it has not"
		}
		if err == nil {
			living = sv.Status.StorageVersions[0].APIServerID
		}
		return ask(err)
	})
	write := func(name string, servers ...string) {
		sv, err := versions.Create(t.Context(), &apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		for i, server := range servers {
			version := fmt.Sprint("v", i+1) // they do not agree
			sv.Status.StorageVersions = append(sv.Status.StorageVersions, apiserverinternalv1alpha1.ServerStorageVersion{
				APIServerID: server, EncodingVersion: version, DecodableVersions: []string{version},
			})
		}
		sv.Status.Conditions = []apiserverinternalv1alpha1.StorageVersionCondition{{
			Type: apiserverinternalv1alpha1.AllEncodingVersionsEqual, Status: apiserverinternalv1alpha1.ConditionFalse,
			Reason: "CommonEncodingVersionUnset", Message: "Common encoding version unset",
		}}
		if len(servers) == 1 {
			sv.Status.CommonEncodingVersion = &sv.Status.StorageVersions[0].EncodingVersion
		}
		_, err = versions.UpdateStatus(t.Context(), sv, metav1.UpdateOptions{})
		must(t, err)
	}
	_, err = leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "another", Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"},
	}}, metav1.CreateOptions{})
	must(t, err)
	write("example.com.shared", living, "another")
	write("example.com.left", "absent")
	within(t, patience, "what no living API server has written goes", func() string {
		_, err := versions.Get(t.Context(), "example.com.left", metav1.GetOptions{})
		return gone(err)
	})
	sv, err := versions.Get(t.Context(), "example.com.shared", metav1.GetOptions{})
	if err != nil || len(sv.Status.StorageVersions) != 2 {
		t.Fatalf("the StorageVersion of two API servers that run is %+v, %v; want the entries of both", sv, err)
	}
	must(t, leases.Delete(t.Context(), "another", metav1.DeleteOptions{}))
	within(t, patience, "what the one has written that is gone is taken out", func() string {
		sv, err := versions.Get(t.Context(), "example.com.shared", metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case len(sv.Status.StorageVersions) != 1 || sv.Status.StorageVersions[0].APIServerID != living:
			return "it is there"
		case sv.Status.CommonEncodingVersion == nil || *sv.Status.CommonEncodingVersion != "v1" || sv.Status.Conditions[0].Status != apiserverinternalv1alpha1.ConditionTrue:
			return "it does not say that the rest agree"
		}
		return ""
	})
}
