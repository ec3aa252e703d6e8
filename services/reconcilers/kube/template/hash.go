package template

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// Hash is a short string that tells a template from others, for labels and names.
// collisions changes it when two templates have the same hash.
//
// It depends on the Go type of a template, which changes with the version of
// Kubernetes. No code may compute it again later: code compares templates to find
// out whether an object is of one.
//
// Upstream: pkg/controller/controller_utils.go, ComputeHash.
func Hash(t *corev1.PodTemplateSpec, collisions *int32) string {
	sum := fnv.New32a()
	_, _ = fmt.Fprintf(sum, "%v", dump.ForHash(*t)) // a hash never fails
	if collisions != nil {
		var salt [8]byte // Upstream: four bytes more than there is to say
		binary.LittleEndian.PutUint32(salt[:], uint32(*collisions))
		_, _ = sum.Write(salt[:])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}
