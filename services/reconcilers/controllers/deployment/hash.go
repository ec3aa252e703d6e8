package deployment

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"
)

// hashLabel tells the pods of one set from those of the others.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// hashOf is the value of the hash label for a template. collisions makes it
// another one when two templates had the same.
//
// It follows from the Go type of a template, which changes with the version of
// Kubernetes, so nothing may rest on computing it again later: whether a set is
// the one of a template is decided by [sameTemplate].
//
// Upstream: pkg/controller/controller_utils.go, ComputeHash.
func hashOf(t *corev1.PodTemplateSpec, collisions *int32) string {
	sum := fnv.New32a()
	_, _ = fmt.Fprintf(sum, "%v", dump.ForHash(*t)) // a hash never fails
	if collisions != nil {
		var salt [8]byte // Upstream: four bytes more than there is to say
		binary.LittleEndian.PutUint32(salt[:], uint32(*collisions))
		_, _ = sum.Write(salt[:])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}

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
	return equality.Semantic.DeepEqual(&x, &y)
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
