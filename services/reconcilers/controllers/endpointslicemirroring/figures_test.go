package endpointslicemirroring

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
)

func subset(port int32, ips ...string) corev1.EndpointSubset {
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "p", Port: port, Protocol: corev1.ProtocolTCP}}}
	for _, ip := range ips {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
	}
	return s
}

// The metric values of a change of mirrors, and the Events about skipped addresses.
func TestWhatIsCounted(t *testing.T) {
	v := View{Max: 3, Endpoints: endpoints(subset(80, "10.0.0.1", "10.0.0.2")), Service: &corev1.Service{}}
	step := func(what string, want string) {
		t.Helper()
		d := decide(v, now)
		sums, told := map[string]float64{}, []string{}
		for _, f := range d.Figures {
			sums[f.Metric] += f.Value
		}
		for _, c := range d.Commands {
			if c.Verb == events.VerbRecord {
				told = append(told, c.OnApplied.Reason)
			}
		}
		got := fmt.Sprint(sums[addedPerSync], sums[updatedPerSync], sums[removedPerSync], sums[skippedPerSync], "; ", sums[desired], sums[actualSlices], sums[desiredSlices], sums[changed], "; ", strings.Join(told, " "))
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		v = applied(v, d, now)
	}
	step("new", "2 0 0 0; 2 1 1 1; ")
	step("as it should be", "0 0 0 0; 2 1 1 0; ")
	v.Endpoints.Subsets[0].Addresses = append(v.Endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: "10.0.0.3"})
	step("one more", "1 0 0 0; 3 1 1 1; ")
	v.Endpoints.Subsets[0].Addresses[1].NodeName = ptr.To("n1")
	step("one is on another node", "0 1 0 0; 3 1 1 1; ")
	v.Endpoints.Subsets[0].Addresses = v.Endpoints.Subsets[0].Addresses[:2]
	v.Endpoints.Subsets[0].NotReadyAddresses = []corev1.EndpointAddress{{IP: "10.0.0.3"}}
	step("one is not ready", "0 1 0 0; 3 1 1 1; ")
	v.Endpoints.Subsets = []corev1.EndpointSubset{subset(80, "10.0.0.1", "none"), subset(81, "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")}
	step("two ports, one address that is none and one too many", "3 0 2 2; 4 2 2 2; InvalidIPAddress TooManyAddressesToMirror")
	v.Endpoints.Subsets = v.Endpoints.Subsets[:1]
	step("one port has been removed", "0 0 3 1; 1 1 1 1; InvalidIPAddress")
	v.Endpoints.Annotations = map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "x", corev1.EndpointsLastChangeTriggerTime: "y"}
	step("an annotation", "0 0 0 1; 1 1 1 1; InvalidIPAddress")
	if got := v.Slices[0].Annotations; len(got) != 1 || got["a"] != "b" {
		t.Errorf("a mirror has the annotations %v", got)
	}
	v.Service = nil
	step("no service", "0 0 0 0; 0 0 0 1; ")
	step("nothing is left", "0 0 0 0; 0 0 0 0; ")
}

// Finalizers of an updated mirror stay, because they belong to other controllers.
func TestFinalizersStay(t *testing.T) {
	v := View{Max: 3, Endpoints: endpoints(subset(80, "10.0.0.1")), Service: &corev1.Service{}}
	v = applied(v, decide(v, now), now)
	v.Slices[0].Finalizers = []string{"example.com/wait"}
	v.Endpoints.Subsets[0].Addresses[0].IP = "10.0.0.2"
	if v = applied(v, decide(v, now), now); len(v.Slices) != 1 || len(v.Slices[0].Finalizers) != 1 {
		t.Errorf("the mirrors are %v", v.Slices)
	}
	v.Endpoints.Subsets[0].Addresses[0].IP = "fd00::1"
	d := decide(v, now)
	if v = applied(v, d, now); len(v.Slices) != 1 || v.Slices[0].AddressType != discoveryv1.AddressTypeIPv6 {
		t.Errorf("with another address family the mirrors are %v", v.Slices)
	}
}

// The default of a thousand mirrored addresses is upstream's.
func TestDefaults(t *testing.T) {
	if got := string(New(Config{}).Settings); got != `{"mirroredPerSubset":1000}` {
		t.Errorf("the settings are %s", got)
	}
}
