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

// Hash is a short text that tells a template from others, for labels and names.
// collisions makes it another one when two templates had the same.
//
// It follows from the Go type of a template, which changes with the version of
// Kubernetes, so nothing may rest on computing it again later: whether something is
// of a template is decided by comparing templates.
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
