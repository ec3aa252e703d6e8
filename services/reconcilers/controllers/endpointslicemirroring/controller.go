// Package endpointslicemirroring copies Endpoints that other clients keep into
// EndpointSlices, for those that read only these. It does so for services without a
// selector, whose endpoints are not ours to know; Endpoints that elect a leader, or
// that ask not to be mirrored, are left alone.
//
// Each set of ports and each family of addresses has one slice, of up to
// [Config].Max addresses: those that are ready go before those that are not. A mirror
// goes with what it shows.
package endpointslicemirroring

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// manager is how the controller signs its slices.
	manager = "endpointslicemirroring-controller.k8s.io"
	// DefaultMax is how many addresses of a subset are mirrored unless it is said
	// otherwise.
	DefaultMax = 1000
)

// Config is what the controller needs to know.
type Config struct {
	// Max is how many addresses of a subset are mirrored at most, up to 1,000; 0 means
	// [DefaultMax].
	Max int `json:"mirroredPerSubset"`
}

// New makes the controller. A key is Endpoints.
func New(config Config) reconcile.Controller[View] {
	config.Max = cmp.Or(config.Max, DefaultMax)
	return reconcile.Controller[View]{
		Name:     "endpointslice-mirroring-controller",
		Aliases:  []string{"endpointslicemirroring"},
		Identity: "endpointslicemirroring-controller",
		Source:   "endpoint-slice-mirroring-controller",
		Queue:    "endpoint_slice_mirroring",
		Owns:     &kinds.Endpoints.Kind,
		Inputs: []reconcile.Input{
			reconcile.Own(kinds.Endpoints.Kind),
			reconcile.Own(kinds.Services.Kind), // of the same name
			{Kind: kinds.EndpointSlices.Kind, Keys: endpoint.KeysOfSlice(manager)},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside, Name: reconcile.After, Fields: []string{".metadata.labels", ".metadata.annotations", ".metadata.generateName", ".metadata.ownerReferences", ".addressType", ".endpoints", ".ports"}, Values: managed},
			{Verb: events.VerbUpdate, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside, Fields: []string{".metadata", ".addressType", ".endpoints", ".ports"}, Values: managed},
			{Verb: events.VerbDelete, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside},
		},
		Tells: reconcile.Tells{
			{Kind: kinds.Endpoints.Kind, On: reconcile.Itself, Reasons: []string{"InvalidIPAddress", "TooManyAddressesToMirror"}},
		},
		Metrics:  metrics,
		Settings: reconcile.Body(config),
		Observe:  func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, config.Max) },
		Decide:   decide,
	}
}

// View is what one turn can see.
type View struct {
	// Endpoints are nil when there are none of this name.
	Endpoints *corev1.Endpoints `json:"endpoints,omitempty"`
	// Service is the one of this name, nil when there is none.
	Service *corev1.Service `json:"service,omitempty"`
	// Max is how many addresses of a subset are mirrored at most.
	Max int `json:"max"`
	// Slices are our mirrors under this name, but for those on their way out.
	Slices []*discoveryv1.EndpointSlice `json:"slices,omitempty"`
	// Attempt tells this attempt from those that failed before it.
	Attempt uint64 `json:"attempt,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key, most int) (View, bool) {
	v := View{Max: most, Slices: endpoint.Slices(s, k, manager)}
	if found, ok := reconcile.Get(s, kinds.Endpoints, k.Namespace, k.Name); ok {
		v.Endpoints, v.Attempt = found, names.Attempt(s, k, found)
	}
	if found, ok := reconcile.Get(s, kinds.Services, k.Namespace, k.Name); ok {
		v.Service = found
	}
	return v, v.Endpoints != nil || len(v.Slices) > 0
}

// managed is what the label says that tells whose a slice is.
var managed = []reconcile.Value{{Path: ".metadata.labels['" + discoveryv1.LabelManagedBy + "']", One: []string{manager}}}
