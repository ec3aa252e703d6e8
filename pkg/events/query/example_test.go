package query_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/query"
)

// The writer lists the pods of a namespace for a turn that asks who uses a claim.
func ExampleUsers() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db-0"},
		Spec: corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{{
			Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}},
		}}},
	}
	var users query.Users
	users.Take(pod, "data-db-0")
	fmt.Println(users)
	// Output: needed by the pod db-0
}
