package system

import (
	"testing"

	"github.com/millrace/millrace/cmd/clustertest"
)

// since are the tests of what older API servers do not have, or refuse: from which minor version 1.x on it is
// there, and what it is.
var since = map[string]struct {
	minor int
	what  string
}{
	"TestOldRequestsForPodsCertificates":  {36, "PodCertificateRequests with a stub of a PKCS #10 request"},
	"TestRulesTaintDevices":               {36, "DeviceTaintRules of resource.k8s.io/v1beta2"},
	"TestObjectsAreStoredInTheNewVersion": {36, "StorageVersionMigrations whose status may have no version yet"},
	"TestPodsLeaveTaintedDevices":         {36, "taints of devices, by default"},
	"TestAPodGroupThatPodsAreIn":          {36, "PodGroups of scheduling.k8s.io/v1alpha2"},
	"TestPoolsOfDevicesAreCounted":        {36, "ResourcePoolStatusRequests of resource.k8s.io/v1alpha3"},
}

// classic reports whether the API server does not constrain impersonation.
func classic(t *testing.T) bool {
	t.Helper()
	n, err := clustertest.Minor()
	must(t, err)
	return n < 36
}

// kustomization is the directory of the manifests for the API server.
func kustomization(t *testing.T) string {
	t.Helper()
	if classic(t) {
		return manifests + "-classic"
	}
	return manifests
}

// rbacFlags are flags of millrace rbac for the API server.
func rbacFlags(t *testing.T) []string {
	t.Helper()
	if classic(t) {
		return []string{"--impersonation=classic"}
	}
	return nil
}

// served reports whether the API server has what a test is about.
func served(t *testing.T) bool {
	t.Helper()
	needs := since[t.Name()]
	n, err := clustertest.Minor()
	must(t, err)
	if n < needs.minor {
		t.Logf("left out: Kubernetes 1.%d does not have %s, which are in 1.%d", n, needs.what, needs.minor)
		return false
	}
	return true
}
