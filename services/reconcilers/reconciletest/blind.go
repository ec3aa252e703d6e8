package reconciletest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// blind: a decision does not depend on the fields that count as unread and may be
// redacted for every controller. The law sets these fields in the pods of the view
// to two different values.
func blind[V any](_ *rapid.T, c reconcile.Controller[V], view V, now time.Time) error {
	text, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("write the view down: %w", err)
	}
	var decisions [2]reconcile.Decision
	for i := range decisions {
		var planted V
		if err := json.Unmarshal(text, &planted); err != nil {
			return fmt.Errorf("read the view: %w", err)
		}
		plant(reflect.ValueOf(&planted), fmt.Sprint("planted ", i))
		decisions[i] = c.Decide(planted, now)
	}
	if err := same(decisions[0], decisions[1]); err != nil {
		return fmt.Errorf("it reads what counts as unread (reconcile.Description.Reads): %w", err)
	}
	return nil
}

// plant writes a text into every field of a value's pods that counts as unread.
func plant(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if pod, ok := v.Interface().(*corev1.Pod); ok && pod != nil {
			plantPod(pod, text)
			return
		}
		if !v.IsNil() {
			plant(v.Elem(), text)
		}
	case reflect.Struct:
		if v.CanAddr() && v.Addr().CanInterface() {
			if pod, ok := v.Addr().Interface().(*corev1.Pod); ok {
				plantPod(pod, text)
				return
			}
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				plant(v.Field(i), text)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			plant(v.Index(i), text)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			within := reflect.New(v.Type().Elem()).Elem()
			within.Set(v.MapIndex(key))
			plant(within, text)
			v.SetMapIndex(key, within)
		}
	default:
	}
}

func plantPod(pod *corev1.Pod, text string) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "example.com/planted", text)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "planted"})
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "planted-before"})
	for _, some := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range some {
			some[i].Env = []corev1.EnvVar{{Name: text, Value: text}}
			some[i].EnvFrom = []corev1.EnvFromSource{{Prefix: text}}
			some[i].Args, some[i].Command = []string{text}, []string{text}
		}
	}
}
