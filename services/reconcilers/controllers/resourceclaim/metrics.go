package resourceclaim

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The metrics, with upstream's names.
//
// Upstream: pkg/controller/resourceclaim/metrics.
const (
	created = "resourceclaim_controller_creates_total"
	claims  = "resourceclaim_controller_resource_claims"
)

var metrics = []reconcile.Metric{
	{
		Name: created, Sort: reconcile.Counter, Labels: []string{"status", "admin_access"},
		Help: "Creations of ResourceClaims from templates. status: success or failure; admin_access: whether they request admin access.",
	},
	{
		Name: claims, Sort: reconcile.Gauge, Labels: []string{"allocated", "admin_access", "source"},
		Help: "ResourceClaims. source: resource_claim_template, extended_resource, or empty where a user made them.",
	},
}

// counted counts the claim among all claims.
func (v View) counted() reconcile.Figure {
	source := ""
	switch {
	case v.Claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true":
		source = "extended_resource"
	case v.Claim.Annotations[resourcev1.PodResourceClaimAnnotation] != "":
		source = "resource_claim_template"
	}
	return reconcile.Figure{Metric: claims, Value: 1, Labels: []string{truth(v.Claim.Status.Allocation != nil), truth(byAdmin(v.Claim.Spec)), source}}
}

func truth(so bool) string {
	if so {
		return "true"
	}
	return "false"
}
