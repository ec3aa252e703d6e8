package access_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
)

// TestRefusedRootCertificatesArePublishedAsUpstreams, and the tests below, are lives in which some writes are
// refused.
func TestRefusedRootCertificatesArePublishedAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	oracletest.Inhabit(t, access.RootCAPublisher, certificatesTouched, stage.Refusal{Verb: plan.Create, Kind: kinds.ConfigMaps.Name}, stage.Refusal{Verb: plan.Update, Kind: kinds.ConfigMaps.Name})
}

func TestRefusedAccountsAreMadeAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	oracletest.Inhabit(t, access.ServiceAccounts, accountsTouched, stage.Refusal{Verb: plan.Create, Kind: kinds.ServiceAccounts.Name})
}

func TestRootCertificatesArePublishedAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	oracletest.Inhabit(t, access.RootCAPublisher, certificatesTouched)
}

func certificatesTouched(r *rapid.T, v *oracletest.Village, namespace string) {
	ref := events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: namespace, Name: rapid.SampledFrom([]string{"kube-root-ca.crt", "kube-root-ca.crt", "other"}).Draw(r, "name")}
	v.Change(r, ref, kinds.ConfigMaps.Kind, func(o metav1.Object, n int) {
		c := o.(*corev1.ConfigMap)
		switch n {
		case 0:
			c.Data = map[string]string{"ca.crt": "a root certificate", "more": "x"}
		case 1:
			c.Data = map[string]string{"ca.crt": "another"}
		case 2:
			c.Annotations = nil
		case 3:
			c.Annotations = map[string]string{"kubernetes.io/description": "ours", "note": "kept"}
		default:
			c.BinaryData = map[string][]byte{"b": {1}}
		}
	})
}

func TestNamespacesHaveAccountsAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	oracletest.Inhabit(t, access.ServiceAccounts, accountsTouched)
}

func accountsTouched(r *rapid.T, v *oracletest.Village, namespace string) {
	ref := events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: namespace, Name: rapid.SampledFrom([]string{"default", "default", "builder"}).Draw(r, "name")}
	v.Change(r, ref, kinds.ServiceAccounts.Kind, func(o metav1.Object, n int) {
		o.SetAnnotations(map[string]string{"note": fmt.Sprint(n)})
	})
}
