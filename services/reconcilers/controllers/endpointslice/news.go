package endpointslice

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Told is the content of the last Events about a service.
type Told struct {
	// Hints has, by family, [hinted] or the reason why there are no hints; only for
	// services that ask for hints by capacity.
	Hints map[discoveryv1.AddressType]string `json:"hints,omitempty"`
	// Skipped names the pods that are skipped because their node does not exist.
	Skipped string `json:"skipped,omitempty"`
}

func (t Told) equal(other Told) bool {
	return t.Skipped == other.Skipped && maps.Equal(t.Hints, other.Hints)
}

// Upstream's words: k8s.io/endpointslice/topologycache/event.go.
const (
	hinted   = "Topology Aware Hints has been enabled"
	unhinted = "Topology Aware Hints has been disabled"
)

// toldOf returns the note of the last report about a service.
func toldOf(s reconcile.Snapshot, k events.Key, svc *corev1.Service) (told Told) {
	last, ok := reconcile.LastOf(s, k, events.LaneStatus, svc)
	if !ok {
		return told
	}
	for _, r := range last.Results {
		if r.OK() && r.Answer != nil && len(r.Answer.Note) > 0 && json.Unmarshal(r.Answer.Note, &told) != nil {
			told = Told{}
		}
	}
	return told
}

// news sends Events about the differences from the last report.
//
// Upstream: tells all of it at every sync, and that hints are on once.
func (v View) news(now Told) reconcile.Decision {
	if now.equal(v.Told) {
		return reconcile.Nothing("Events about its hints and pods are recorded")
	}
	var told []events.Command
	for _, family := range slices.Sorted(maps.Keys(joined(v.Told.Hints, now.Hints))) {
		level, reason, message := v.change(v.Told.Hints[family], now.Hints[family])
		if message != "" {
			told = append(told, reconcile.Record(*v.notice(level, reason, message+", addressType: "+string(family))))
		}
	}
	if now.Skipped != "" && now.Skipped != v.Told.Skipped {
		told = append(told, reconcile.Record(*v.notice(corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", v.failing()+now.Skipped)))
	}
	if len(told) == 0 {
		told = []events.Command{{Verb: events.VerbRecord}} // only for its note
	}
	told[len(told)-1].Note = reconcile.Body(now)
	return reconcile.Do("Events about its hints or missing nodes are not recorded", told...)
}

func (v View) change(was, is string) (level, reason, message string) {
	const disabled = "TopologyAwareHintsDisabled"
	switch {
	case was == is, is == "" && was != hinted:
		return "", "", ""
	case is == hinted:
		return corev1.EventTypeNormal, "TopologyAwareHintsEnabled", hinted
	case is == "":
		return corev1.EventTypeWarning, disabled, unhinted
	default:
		return corev1.EventTypeWarning, disabled, is
	}
}

func joined(a, b map[discoveryv1.AddressType]string) map[discoveryv1.AddressType]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[discoveryv1.AddressType]string{}
	}
	maps.Copy(all, b)
	return all
}

// longest is the maximum length of Told.Skipped, in bytes, apart from its last part; it
// drops whole sentences beyond that.
const longest = 900

// skipped names the pods that are skipped because their node does not exist; "" if there
// are none.
//
// Upstream: k8s.io/endpointslice/reconciler.go, reconcileByAddressType, whose errors are
// told as one.
func (v View) skipped() string {
	var all []string
	length := 0
	for _, p := range v.Pods {
		if _, known := v.Zones[p.Spec.NodeName]; known || v.Service.Spec.PublishNotReadyAddresses || !service.Reachable(p) {
			continue
		}
		one := fmt.Sprintf("skipping Pod %s for Service %s/%s: Node %s Not Found", p.Name, v.Service.Namespace, v.Service.Name, p.Spec.NodeName)
		if length += len(one); length > longest && len(all) > 0 {
			all = append(all, "and others")
			break
		}
		all = append(all, one)
	}
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (v View) failing() string {
	return "Error updating Endpoint Slices for Service " + v.Service.Namespace + "/" + v.Service.Name + ": "
}

func (v View) notice(level, reason, message string) *events.Notice {
	return &events.Notice{About: reconcile.About(kinds.Services.Kind, v.Service), Type: level, Reason: reason, Message: message}
}
