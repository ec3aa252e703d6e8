package deployment

import (
	"bytes"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
)

// hashLabel distinguishes the pods of the sets.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// nameOf returns the name of a Deployment's set, given the hash of its template.
func nameOf(d *appsv1.Deployment, hash string) string {
	room := validation.DNS1123SubdomainMaxLength - len("-") - len(hash)
	return d.Name[:min(len(d.Name), room)] + "-" + hash
}

// sameTemplate reports whether two templates are equal except for the hash label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := *a, *b // shallow: the parts are only read
	x.Labels, y.Labels = withoutHash(a.Labels), withoutHash(b.Labels)
	return sameBytes(&x, &y) || equality.Semantic.DeepEqual(&x, &y)
}

// sameBytes reports whether two templates serialise to the same bytes. Equal templates
// nearly always do, and this comparison takes a third of the time. Different bytes may
// still be equal templates, for instance when a quantity is written in two ways.
func sameBytes(a, b *corev1.PodTemplateSpec) bool {
	x, err := a.Marshal()
	if err != nil {
		return false
	}
	y, err := b.Marshal()
	return err == nil && bytes.Equal(x, y)
}

// withoutHash returns the labels that the user gave.
func withoutHash(labels map[string]string) map[string]string {
	if _, there := labels[hashLabel]; !there {
		return labels
	}
	given := make(map[string]string, len(labels))
	for key, value := range labels {
		if key != hashLabel {
			given[key] = value
		}
	}
	return given
}
