package access_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

// Both publish, or correct, the wanted bundle in the same way.
func TestBundlesArePublishedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, access.Bundles, events.Key{Name: bundleName(access.BundleCA)}, publishedBundle)
}

// After that, both delete the older bundle.
func TestOlderBundlesGoAsUpstreams(t *testing.T) {
	oracletest.Agree(t, access.Bundles, events.Key{Name: bundleName(olderCA)}, olderBundle)
}

var olderCA = certificate(time.Hour)

func bundleName(text []byte) string {
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(access.BundleSigner, "/", ":"), sum[:12])
}

// aBundle is a bundle of the signer; upstream's fake client does not separate those of other signers.
func aBundle(name string, text []byte) *certificatesv1beta1.ClusterTrustBundle {
	return &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "10"},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: access.BundleSigner, TrustBundle: string(text)},
	}
}

// publishedBundle is a world in which the wanted bundle exists, is missing, or has other content.
func publishedBundle(t *rapid.T) []runtime.Object {
	if rapid.IntRange(0, 3).Draw(t, "there") == 0 {
		return nil
	}
	b := aBundle(bundleName(access.BundleCA), rapid.SampledFrom([][]byte{access.BundleCA, olderCA, append([]byte("words\n"), access.BundleCA...), nil}).Draw(t, "in it"))
	b.Labels = rapid.SampledFrom([]map[string]string{nil, {"a": "b"}}).Draw(t, "labels")
	return []runtime.Object{b}
}

// olderBundle is a world with the wanted bundle, and perhaps an older one.
func olderBundle(t *rapid.T) []runtime.Object {
	world := []runtime.Object{aBundle(bundleName(access.BundleCA), access.BundleCA)}
	if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
		world = append(world, aBundle(bundleName(olderCA), olderCA))
	}
	return world
}
