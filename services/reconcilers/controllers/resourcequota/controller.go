// Package resourcequota writes the usage of every ResourceQuota into its status: how many
// objects of a kind its namespace holds, and what they request.
//
// The API server enforces quotas: it refuses a create that would exceed one, and charges
// the quota before it creates the object. It does not credit the quota when objects go, so
// this controller counts again when something was deleted, has ended or shrunk, when the
// limits have changed, and from time to time. It ignores creates. It must therefore count
// exactly as the API server does, or the usage would go up and down.
//
// Between charge and create an object does not exist yet, and a count in that moment takes
// its charge back. Upstream corrects that in its next full count, minutes later. Here a
// count that changed the usage is repeated after [recount]. And a terminating pod that
// should have gone stops counting when its time is up, not at the next event.
package resourcequota

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// DefaultPeriod is how often the controller counts everything again by default.
	DefaultPeriod = 5 * time.Minute
	// recount is how long after a change of the usage the controller counts again.
	recount = 10 * time.Second
	// search is how often the controller checks whether the cluster has by now a kind that
	// it lacked: until that kind has been counted, the API server lets no client create its
	// objects.
	search = 30 * time.Second
)

// Config is the configuration of the controller.
type Config struct {
	// Period is how often the controller counts everything again; 0 means [DefaultPeriod],
	// less than 0 never.
	Period time.Duration `json:"quotaPeriod"`
	// Gates are the feature gates that differ from Kubernetes' defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

// New returns the controller. A key is a ResourceQuota.
func New(config Config) reconcile.Controller[View] {
	config.Period = cmp.Or(config.Period, DefaultPeriod)
	config.Gates = config.Gates.Of(gate.PodLevelResources, gate.DRAExtendedResource)
	return reconcile.Controller[View]{
		Name:    "resourcequota-controller",
		Aliases: []string{"resourcequota"},
		Queue:   "resourcequota_primary",
		Owns:    &kinds.ResourceQuotas.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.ResourceQuotas.Kind, Keys: limited},
			{Kind: kinds.Pods.Kind, Keys: changed},
			{Kind: kinds.Services.Kind, Keys: changed},
			{Kind: kinds.PersistentVolumeClaims.Kind, Keys: changed},
			{Kind: kinds.ResourceClaims.Kind},
			{Kind: kinds.DeviceClasses.Kind},
			{Every: true, Keys: cameOrWent},
		},
		Writes:   reconcile.Writes{{Verb: events.VerbUpdate, Kind: kinds.ResourceQuotas.Name, Subresource: "status", On: reconcile.Itself}},
		Settings: reconcile.Body(config),
		Observe:  func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, config) },
		Decide:   decide,
	}
}

// View is what the turn of one quota can see: the objects of the kinds that it limits, and
// no others.
type View struct {
	Quota  *corev1.ResourceQuota `json:"quota"`
	Period time.Duration         `json:"period,omitempty"`
	Gates  gate.Set              `json:"gates,omitempty"`

	Pods     []*corev1.Pod                   `json:"pods,omitempty"`
	Services []*corev1.Service               `json:"services,omitempty"`
	Claims   []*corev1.PersistentVolumeClaim `json:"claims,omitempty"`
	// Devices are the ResourceClaims, Classes the DeviceClasses that they request.
	Devices []*resourcev1.ResourceClaim `json:"devices,omitempty"`
	Classes []*resourcev1.DeviceClass   `json:"classes,omitempty"`
	// Counts are the numbers of objects of the kinds of which the quota limits only the
	// number, by the quota's name for each.
	Counts map[corev1.ResourceName]int64 `json:"counts,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key, config Config) (View, bool) {
	quota, ok := reconcile.Get(s, kinds.ResourceQuotas, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Quota: quota, Period: config.Period, Gates: config.Gates, Classes: reconcile.List(s, kinds.DeviceClasses, "")}
	m := v.meters()
	if m.devices.limited(quota) {
		v.Devices = reconcile.List(s, kinds.ResourceClaims, k.Namespace)
	} else {
		v.Classes = nil
	}
	if m.pods.limited(quota) || len(v.Devices) > 0 {
		v.Pods = reconcile.List(s, kinds.Pods, k.Namespace)
	}
	if m.services.limited(quota) {
		v.Services = reconcile.List(s, kinds.Services, k.Namespace)
	}
	if m.claims.limited(quota) {
		v.Claims = reconcile.List(s, kinds.PersistentVolumeClaims, k.Namespace)
	}
	for name := range quota.Spec.Hard {
		counted, ok := countOf(name)
		if kind, known := s.Kind(counted); !ok || !known || !kind.Namespaced {
			continue
		}
		if v.Counts == nil {
			v.Counts = map[corev1.ResourceName]int64{}
		}
		v.Counts[name] = int64(len(s.List(counted, k.Namespace)))
	}
	return v, true
}
