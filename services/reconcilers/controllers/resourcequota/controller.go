// Package resourcequota says on every ResourceQuota how much of it is used: how many
// objects of a kind there are in its namespace, and what they ask for.
//
// The API server enforces quotas: a client that makes something is refused when it would be
// too much, and charged before it is made. What is taken back is not told to the quota,
// so this controller counts again when something has gone, ended or shrunk, when the
// limits have changed, and from time to time. Whatever is made is none of its business;
// so how things are counted must be the same here as in the API server, or what is
// used would go up and down.
//
// Between charge and create an object is not there to be counted, and a count in that
// moment takes its charge back. Upstream finds that out the next time that it counts
// everything, minutes later. Here a count that changed something is repeated after
// [recount]. And a pod that should have ended by now and has not is let off when its
// time is up, not when something else happens.
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
	// DefaultPeriod is how often everything is counted again unless it is said otherwise.
	DefaultPeriod = 5 * time.Minute
	// recount is how long after a change of what is used it is counted again.
	recount = 10 * time.Second
	// search is how often it is looked whether the cluster has by now what it did not
	// have: until it has been counted, the API server lets no client make any.
	search = 30 * time.Second
)

// Config is what the controller needs to know.
type Config struct {
	// Period is how often everything is counted again; 0 means [DefaultPeriod], less
	// than 0 never.
	Period time.Duration `json:"quotaPeriod"`
	// Gates are the feature gates that are not at Kubernetes' defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

// New makes the controller. A key is a ResourceQuota.
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

// View is what the turn of one quota can see: of each kind what it limits, and
// nothing of those that it does not.
type View struct {
	Quota  *corev1.ResourceQuota `json:"quota"`
	Period time.Duration         `json:"period,omitempty"`
	Gates  gate.Set              `json:"gates,omitempty"`

	Pods     []*corev1.Pod                   `json:"pods,omitempty"`
	Services []*corev1.Service               `json:"services,omitempty"`
	Claims   []*corev1.PersistentVolumeClaim `json:"claims,omitempty"`
	// Devices are the claims to devices, Classes what they claim.
	Devices []*resourcev1.ResourceClaim `json:"devices,omitempty"`
	Classes []*resourcev1.DeviceClass   `json:"classes,omitempty"`
	// Counts are how many objects there are of the kinds of which only the number is
	// limited, by the name that the quota has for it.
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
