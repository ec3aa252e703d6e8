package replicas

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAgeRatios(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var pods []*corev1.Pod
	for i, age := range []int{10, 35, 80, 5} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint(i), CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(age) * time.Second)),
		}}
		if i < 3 { // the youngest is not ready, and does not count
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		pods = append(pods, p)
	}
	for _, c := range []struct {
		name     string
		toDelete []*corev1.Pod
		at       time.Time
		want     []float64
	}{
		{"some", pods[1:], now, []float64{3, 8}},
		{"the youngest itself", pods[:1], now, []float64{1}},
		{"one that is not ready", pods[3:], now, nil},
		{"all: nothing was chosen", pods, now, nil},
		{"a clock that is behind", pods[:2], now.Add(-time.Minute), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []float64
			for _, f := range ageRatios(pods, c.toDelete, c.at) {
				got = append(got, f.Value)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
