package endpointslice

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The metric values of a service with two pods: when it is new, when it is up to date,
// and when it has lost a pod.
func TestWhatIsCounted(t *testing.T) {
	v := View{Service: svc("web"), Max: 100, Pods: []*corev1.Pod{podAt("a", "10.1.0.1"), podAt("b", "10.1.0.2")}, Zones: map[string]string{"n1": "east"}}
	v.Service.Spec.TrafficDistribution = ptr.To("PreferClose")
	check := func(when string, v View, want map[string]float64) View {
		d := decide(v, now)
		sums := map[string]float64{}
		for _, f := range d.Figures {
			sums[f.Metric] += f.Value
		}
		for metric, value := range want {
			if sums[metric] != value {
				t.Errorf("%s %s is %v, want %v", when, metric, sums[metric], value)
			}
		}
		return applied(v, d, now)
	}
	v = check("new", v, map[string]float64{desired: 2, actualSlices: 1, desiredSlices: 1, byDistribution: 1, addedPerSync: 2, removedPerSync: 0, changedPerSync: 1, changed: 1})
	v = check("as it should be", v, map[string]float64{desired: 2, actualSlices: 1, desiredSlices: 1, byDistribution: 1, changed: 0, addedPerSync: 0})
	v.Pods = v.Pods[:1]
	v = check("with a pod less", v, map[string]float64{desired: 1, removedPerSync: 1, addedPerSync: 0, changed: 1})
	v.Pods = nil
	check("with none", v, map[string]float64{desired: 0, actualSlices: 1, desiredSlices: 1})
}
