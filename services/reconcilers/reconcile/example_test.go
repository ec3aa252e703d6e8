package reconcile_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// A controller's decision is a value: a reason, commands, and when to decide again.
func ExampleDo() {
	expires := func(p *corev1.Pod, now time.Time) reconcile.Decision {
		at := p.CreationTimestamp.Add(time.Hour)
		if now.Before(at) {
			return reconcile.Wake(at, "the pod has not expired yet")
		}
		return reconcile.Do("the pod has expired", reconcile.Delete(kinds.Pods.Kind, p))
	}
	created := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "7d1", CreationTimestamp: metav1.NewTime(created)}}

	early := expires(p, created.Add(time.Minute))
	fmt.Println(early.Because, early.WakeAt.Format(time.TimeOnly))
	late := expires(p, created.Add(2*time.Hour))
	fmt.Println(late.Because, late.Commands[0].Verb, late.Commands[0].Ref(), late.Commands[0].If.UID)
	// Output:
	// the pod has not expired yet 13:00:00
	// the pod has expired delete pods:default/web-1 7d1
}
