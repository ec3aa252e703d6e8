package legacytokencleaner

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// names reports whether a pod names a Secret anywhere.
//
// Upstream: pkg/api/v1/pod, VisitPodSecretNames.
func names(p *corev1.Pod, secret string) bool {
	is := func(name string) bool { return name == secret }
	return slices.ContainsFunc(p.Spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return is(r.Name) }) ||
		slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return slices.ContainsFunc(ofVolume(v.VolumeSource), is) }) ||
		slices.ContainsFunc(containers(p), func(c corev1.EphemeralContainerCommon) bool { return slices.ContainsFunc(ofContainer(c), is) })
}

// containers returns the containers of all types.
func containers(p *corev1.Pod) (all []corev1.EphemeralContainerCommon) {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		all = append(all, corev1.EphemeralContainerCommon(c))
	}
	for _, c := range p.Spec.EphemeralContainers {
		all = append(all, c.EphemeralContainerCommon)
	}
	return all
}

func ofContainer(c corev1.EphemeralContainerCommon) (found []string) {
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			found = append(found, from.SecretRef.Name)
		}
	}
	for _, variable := range c.Env {
		if from := variable.ValueFrom; from != nil && from.SecretKeyRef != nil {
			found = append(found, from.SecretKeyRef.Name)
		}
	}
	return found
}

func ofVolume(v corev1.VolumeSource) (found []string) {
	local := func(r *corev1.LocalObjectReference) {
		if r != nil {
			found = append(found, r.Name)
		}
	}
	switch {
	case v.Secret != nil:
		found = append(found, v.Secret.SecretName)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				found = append(found, source.Secret.Name)
			}
		}
	case v.CSI != nil:
		local(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		found = append(found, v.AzureFile.SecretName)
	case v.CephFS != nil:
		local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		local(v.StorageOS.SecretRef)
	}
	return found
}
