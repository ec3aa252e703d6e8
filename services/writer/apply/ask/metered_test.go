package ask

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// A pod's usage is that of its containers, if each reports it.
func TestWhatAPodUses(t *testing.T) {
	var p podMetrics
	add := func(name string, usage corev1.ResourceList) {
		p.Containers = append(p.Containers, struct {
			Name  string              `json:"name"`
			Usage corev1.ResourceList `json:"usage"`
		}{name, usage})
	}
	if _, ok := p.uses("cpu", ""); ok {
		t.Error("a pod without containers uses something")
	}
	add("a", corev1.ResourceList{"cpu": quantity.MustParse("100m"), "memory": quantity.MustParse("1")})
	add("b", corev1.ResourceList{"cpu": quantity.MustParse("30m")})
	for what, c := range map[string]struct {
		of        corev1.ResourceName
		container string
		milli     int64
		ok        bool
	}{
		"all": {"cpu", "", 130, true}, "one": {"cpu", "b", 30, true}, "none of that name": {"cpu", "c", 0, false},
		"not all say": {"memory", "", 0, false}, "one that says": {"memory", "a", 1000, true},
	} {
		if milli, ok := p.uses(c.of, c.container); ok != c.ok || milli != c.milli {
			t.Errorf("%s: %d, %t, want %d", what, milli, ok, c.milli)
		}
	}
}
