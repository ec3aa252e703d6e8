package deployment

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func plain() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1"}}},
	}
}

// defaulted is plain as the API server stores it in a Deployment.
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
		{"plain, 1 collision", plain(), ptr[int32](1), "6966c9c947"},
		{"plain, 2 collisions", plain(), ptr[int32](2), "655cc7c944"},
		{"defaulted", defaulted(), nil, "7866ccff64"},
		{"defaulted, 1 collision", defaulted(), ptr[int32](1), "c469c89c"},
		{"empty", corev1.PodTemplateSpec{}, nil, "85748b7f68"},
	} {
		if got := hashOf(&c.template, c.collisions); got != c.want {
			t.Errorf("%s: hash %s, want %s", c.what, got, c.want)
		}
	}
}

func TestNamesOfSetsAreBounded(t *testing.T) {
	if got := nameOf(reconciletest.Deployment("web", 1), "7866ccff64"); got != "web-7866ccff64" {
		t.Errorf("name = %s", got)
	}
	long := nameOf(reconciletest.Deployment(strings.Repeat("a", 253), 1), "7866ccff64")
	if len(long) != validation.DNS1123SubdomainMaxLength || !strings.HasSuffix(long, "a-7866ccff64") {
		t.Errorf("name = %s, %d characters", long, len(long))
	}
}

func TestTemplatesAreTheSameButForTheHash(t *testing.T) {
	a, b := plain(), plain()
	b.Labels[hashLabel] = "abc"
	if !sameTemplate(&a, &b) || b.Labels[hashLabel] != "abc" {
		t.Error("the hash label made a difference, or was lost")
	}
	b.Spec.Containers[0].Image = "nginx:2"
	if sameTemplate(&a, &b) {
		t.Error("another image made no difference")
	}
}

func ptr[T any](v T) *T { return &v }
