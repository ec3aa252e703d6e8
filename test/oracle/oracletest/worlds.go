package oracletest

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/test/oracle/objects"
)

// Namespace is that of the worlds' objects.
const Namespace = "default"

// Owner is the name of a world's main object.
const Owner = "web"

// Key is the key of a world's main object.
var Key = events.Key{Namespace: Namespace, Name: Owner}

// ClusterKey is the key of a world's main object, if its kind has no namespaces.
var ClusterKey = events.Key{Name: Owner}

// AnyGates are some gates, each at its default or not.
func AnyGates(t *rapid.T, names ...string) gate.Set {
	defaults, set := gate.Set{}, gate.Set{}
	for _, name := range names {
		if rapid.IntRange(0, 2).Draw(t, name) == 0 {
			set[name] = !defaults.On(name)
		}
	}
	return set
}

// Before is a time some seconds before now, in whole seconds.
func Before(now time.Time, seconds int) metav1.Time {
	return metav1.NewTime(now.Truncate(time.Second).Add(-time.Duration(seconds) * time.Second))
}

// Unlike is two pages with the differing lines marked.
func Unlike(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	var page strings.Builder
	for i := range max(len(x), len(y)) {
		switch {
		case i < len(x) && i < len(y) && x[i] == y[i]:
			fmt.Fprintln(&page, "  "+x[i])
			continue
		case i < len(x):
			fmt.Fprintln(&page, "- "+x[i])
		}
		if i < len(y) {
			fmt.Fprintln(&page, "+ "+y[i])
		}
	}
	return page.String()
}

// Page is a world as YAML.
func Page(r *rapid.T, world []runtime.Object) string {
	var parts []string
	for _, obj := range world {
		text, err := yaml.Marshal(obj)
		if err != nil {
			r.Fatal(err)
		}
		parts = append(parts, string(text))
	}
	return strings.Join(parts, "---\n")
}

// Meta is the metadata of an object in the worlds' namespace.
func Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"}
}

// Ptr is a pointer to a copy of a value.
func Ptr[T any](v T) *T { return &v }

// Chance is true in one of n draws.
func Chance(t *rapid.T, n int, what string) bool { return rapid.IntRange(1, n).Draw(t, what) == 1 }

// Small is a number from 0 to most.
func Small(t *rapid.T, most int, what string) int32 {
	return int32(rapid.IntRange(0, most).Draw(t, what))
}

// Template is the template of pods with one of several images.
func Template(image int) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": Owner}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: fmt.Sprintf("web:v%d", image)}}},
	}
}

// Ago is a time in the past, in whole seconds.
func Ago(t *rapid.T, most int, what string) metav1.Time {
	return metav1.NewTime(objects.Now.Add(-time.Duration(rapid.IntRange(10, most).Draw(t, what)) * time.Second).Truncate(time.Second))
}
