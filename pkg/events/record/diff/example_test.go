package diff_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/diff"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// An object is compared at two of its versions.
func ExampleCompare() {
	ctx := context.Background()
	b := memory.New(memory.Options{})
	defer b.Close()
	past, err := recordtest.New(ctx, b, []kinds.Kind{kinds.Pods.Kind}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}}
	var moments [2]record.Moment
	for i, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning} {
		pod.Status.Phase = phase
		d, err := past.Write(kinds.Pods.Kind, pod, "kubelet")
		if err == nil {
			_, err = past.Say(ctx, d)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		moments[i] = record.Moment{Version: d.ResourceVersion}
	}
	d, err := diff.Compare(ctx, record.New(b), kinds.Pods.Kind, events.Ref{Kind: "pods", Namespace: "shop", Name: "web-1"}, moments[0], moments[1])
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range d.Changes {
		fmt.Println(c.Path, c.Was, c.Is)
	}
	// Output: status.phase Pending Running
}
