package access_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

// TestWorldsAreEventful makes sure that upstream does everything that it can do in the worlds.
func TestWorldsAreEventful(t *testing.T) {
	oracletest.Eventful(t, []oracletest.EventfulCase{
		{Name: "requests for certificates", Pair: access.RequestCleaner, Key: oracletest.ClusterKey, Worlds: oldRequest, Want: []string{"delete certificatesigningrequests"}},
		{Name: "requests of pods", Pair: access.PodRequestCleaner, Key: oracletest.Key, Worlds: func(r *rapid.T) []runtime.Object {
			return []runtime.Object{podsRequest(r, []int{0, 900})}
		}, Want: []string{"delete podcertificaterequests"}},
		{Name: "bootstrap tokens", Pair: access.TokenCleaner, Key: bootstrapKey, Worlds: bootstrapWorld, Want: []string{"delete secrets"}},
		{Name: "approved requests", Pair: access.RequestSigner, Key: oracletest.ClusterKey, Worlds: approvedRequest, Want: []string{"certificate\":", "SignerValidationFailure", "update certificatesigningrequests/status"}},
		{Name: "bundles", Pair: access.Bundles, Key: events.Key{Name: bundleName(access.BundleCA)}, Worlds: publishedBundle, Want: []string{"create clustertrustbundles", "update clustertrustbundles"}},
		{Name: "older bundles", Pair: access.Bundles, Key: events.Key{Name: bundleName(olderCA)}, Worlds: olderBundle, Want: []string{"delete clustertrustbundles"}},
		{Name: "requests of kubelets", Pair: access.RequestApprover, Key: oracletest.ClusterKey, Worlds: kubeletRequest, Want: []string{"update certificatesigningrequests/approval"}},
	})
}
