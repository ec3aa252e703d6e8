package template_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/services/reconcilers/kube/template"
)

func plain() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1"}}},
	}
}

// defaulted is plain as the API server stores it in a set.
func defaulted() corev1.PodTemplateSpec {
	t, grace := plain(), int64(30)
	t.Spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	t.Spec.Containers[0].TerminationMessagePath = corev1.TerminationMessagePathDefault
	t.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageReadFile
	t.Spec.RestartPolicy, t.Spec.DNSPolicy = corev1.RestartPolicyAlways, corev1.DNSClusterFirst
	t.Spec.TerminationGracePeriodSeconds, t.Spec.SecurityContext = &grace, &corev1.PodSecurityContext{}
	t.Spec.SchedulerName = corev1.DefaultSchedulerName
	return t
}

func TestHashIsUpstreams(t *testing.T) {
	for _, c := range []struct {
		what       string
		template   corev1.PodTemplateSpec
		collisions *int32
		want       string
	}{
		{"plain", plain(), nil, "7b4444459d"},
		{"plain, 0 collisions", plain(), new(int32), "f9b4f94c4"},
		{"plain, 1 collision", plain(), ptr.To[int32](1), "6966c9c947"},
		{"plain, 2 collisions", plain(), ptr.To[int32](2), "655cc7c944"},
		{"defaulted", defaulted(), nil, "7866ccff64"},
		{"defaulted, 1 collision", defaulted(), ptr.To[int32](1), "c469c89c"},
		{"empty", corev1.PodTemplateSpec{}, nil, "85748b7f68"},
	} {
		if got := template.Hash(&c.template, c.collisions); got != c.want {
			t.Errorf("%s: hash %s, want %s", c.what, got, c.want)
		}
	}
}
