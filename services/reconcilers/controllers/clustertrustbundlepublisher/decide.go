package clustertrustbundlepublisher

import (
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide creates the wanted bundle, and deletes the others once it exists.
//
// Upstream: pkg/controller/certificates/clustertrustbundlepublisher, syncClusterTrustBundle.
func decide(v View, _ time.Time) reconcile.Decision {
	switch {
	case v.Wanted != "" && v.Bundle == nil:
		return reconcile.Do("the root certificate is not published yet", reconcile.Create(kinds.ClusterTrustBundles.Kind, "", v.Name, reconcile.Body(v.fresh())))
	case v.Wanted != "" && v.Bundle.Spec.TrustBundle != v.Wanted:
		return reconcile.Do("the published bundle is not the root certificate", reconcile.Update(kinds.ClusterTrustBundles.Kind, v.righted()))
	case v.Wanted != "":
		return reconcile.Nothing("the root certificate is published")
	case v.Bundle == nil:
		return reconcile.Nothing("the bundle does not exist")
	case v.Bundle.DeletionTimestamp != nil:
		return reconcile.Nothing("the bundle is being deleted")
	case !v.Succeeded:
		return reconcile.Nothing("the bundle is kept until the root certificate is published in another one")
	default:
		return reconcile.Do("the root certificate is published in another bundle", reconcile.Delete(kinds.ClusterTrustBundles.Kind, v.Bundle))
	}
}

func (v View) fresh() *certificatesv1beta1.ClusterTrustBundle {
	return &certificatesv1beta1.ClusterTrustBundle{Spec: certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: v.Wanted}}
}

func (v View) righted() *certificatesv1beta1.ClusterTrustBundle {
	righted := v.Bundle.DeepCopy()
	righted.Spec.TrustBundle = v.Wanted
	return righted
}
