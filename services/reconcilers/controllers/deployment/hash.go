package deployment

import (
	"bytes"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
)

// hashLabel tells the pods of one set from those of the others.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// nameOf is the name of a Deployment's set with a hash.
func nameOf(d *appsv1.Deployment, hash string) string {
	room := validation.DNS1123SubdomainMaxLength - len("-") - len(hash)
	return d.Name[:min(len(d.Name), room)] + "-" + hash
}

// sameTemplate tells whether two templates make the same pods, but for the hash
// label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := *a, *b // shallow: the parts are only read
	x.Labels, y.Labels = withoutHash(a.Labels), withoutHash(b.Labels)
	return sameBytes(&x, &y) || equality.Semantic.DeepEqual(&x, &y)
}

// sameBytes tells whether two templates are written in the same bytes. Then they are the
// same, as they nearly always are, and to find that out so takes a third of the time.
// Where they are not, as when a quantity is written in two ways, they may be so as well.
func sameBytes(a, b *corev1.PodTemplateSpec) bool {
	x, err := a.Marshal()
	if err != nil {
		return false
	}
	y, err := b.Marshal()
	return err == nil && bytes.Equal(x, y)
}

// withoutHash is the labels that a user gave.
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
