package deployment

import (
	"math"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// wanted returns how many replicas a Deployment asks for. The API server defaults it to 1.
func wanted(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

func rolls(d *appsv1.Deployment) bool {
	return d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType
}

// bounds returns how many replicas above the wanted number, and how many available ones
// below it, a rolling update may have. Percentages are rounded up for surge and down for
// unavailable. If both are 0, unavailable is 1, since otherwise the rollout could never move.
//
// Upstream: pkg/controller/deployment/util, ResolveFenceposts; values that are
// no amounts are the API's to refuse and count as 0.
func bounds(d *appsv1.Deployment) (surge, unavailable int32) {
	if !rolls(d) {
		return 0, 0
	}
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		surge = amount(r.MaxSurge, wanted(d), true)
		unavailable = amount(r.MaxUnavailable, wanted(d), false)
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

func amount(of *intstr.IntOrString, total int32, up bool) int32 {
	if of == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(of, int(total), up)
	if err != nil || n < 0 {
		return 0
	}
	return int32(min(n, math.MaxInt32))
}

// most returns how many replicas all sets together may ask for.
func most(d *appsv1.Deployment) int32 {
	surge, _ := bounds(d)
	return int32(min(int64(wanted(d))+int64(surge), math.MaxInt32))
}

// least returns how many replicas must stay available.
//
// Upstream: nothing may be missing when nothing is wanted, and only a rolling
// update may miss some.
func least(d *appsv1.Deployment) int32 {
	_, unavailable := bounds(d)
	return wanted(d) - min(unavailable, wanted(d))
}
