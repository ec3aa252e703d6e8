// Package endpointslicemirroring copies Endpoints that other clients write into
// EndpointSlices, for clients that read only these. It does so for services without a
// selector, whose endpoints only their user knows. It ignores Endpoints that serve as a
// leader election lock, or that ask not to be mirrored.
//
// Each set of ports and address family has one slice, of up to [Config].Max addresses;
// ready addresses come first. The mirrors are deleted with their Endpoints.
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
	// manager is the controller's name in the managed-by label of its slices.
	manager = "endpointslicemirroring-controller.k8s.io"
	// DefaultMax is the default of [Config].Max.
	DefaultMax = 1000
)

// Config configures the controller.
type Config struct {
	// Max is the maximum number of mirrored addresses of a subset, up to 1,000; 0 means
	// [DefaultMax].
	Max int `json:"mirroredPerSubset"`
}

// New returns the controller. A key is an Endpoints object.
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
			reconcile.Own(kinds.Services.Kind), // by the name of the Endpoints
			{Kind: kinds.EndpointSlices.Kind, Keys: endpoint.KeysOfSlice(manager)},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside, Name: reconcile.After, Fields: []string{".metadata.labels", ".metadata.annotations", ".metadata.generateName", ".metadata.ownerReferences", ".addressType", ".endpoints", ".ports"}, Values: managed},
			{Verb: events.VerbUpdate, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside, Fields: []string{".metadata", ".addressType", ".endpoints", ".ports"}, Values: managed},
			{Verb: events.VerbDelete, Kind: kinds.EndpointSlices.Name, On: reconcile.Beside},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.Endpoints.Kind, On: reconcile.Itself, Reasons: []string{"InvalidIPAddress", "TooManyAddressesToMirror"}},
		},
		Metrics:  metrics,
		Settings: reconcile.Body(config),
		Observe:  func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, config.Max) },
		Decide:   decide,
	}
}

// View is the input of one turn.
type View struct {
	// Endpoints is nil if no object has this name.
	Endpoints *corev1.Endpoints `json:"endpoints,omitempty"`
	// Service is the service of this name, nil if there is none.
	Service *corev1.Service `json:"service,omitempty"`
	// Max is the maximum number of mirrored addresses of a subset.
	Max int `json:"max"`
	// Slices are this controller's mirrors under this name, without terminating ones.
	Slices []*discoveryv1.EndpointSlice `json:"slices,omitempty"`
	// Attempt makes the names of creates differ from those of failed attempts.
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

// managed is the value of the label that names the manager of a slice.
var managed = []reconcile.Value{{Path: ".metadata.labels['" + discoveryv1.LabelManagedBy + "']", One: []string{manager}}}
