package deployment

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// TestTemplatesAreTheSameHoweverTheyAreWritten checks that templates with different bytes
// are compared by their meaning.
func TestTemplatesAreTheSameHoweverTheyAreWritten(t *testing.T) {
	a, b := plain(), plain()
	for template, limit := range map[*corev1.PodTemplateSpec]string{&a: "1Gi", &b: "1073741824"} {
		template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	}
	if sameBytes(&a, &b) {
		t.Error("the quantities are written in one way")
	}
	if !sameTemplate(&a, &b) {
		t.Error("a quantity that is written in another way made a difference")
	}
}

func BenchmarkSameTemplate(b *testing.B) {
	x, y := plain(), plain()
	y.Labels[hashLabel] = "abc"
	for b.Loop() {
		if !sameTemplate(&x, &y) {
			b.Fatal("not the same")
		}
	}
}
