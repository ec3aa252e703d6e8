package devices

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamtaints "k8s.io/kubernetes/pkg/controller/devicetainteviction"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/devicetainteviction"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// DeviceTaints evicts pods from devices that their slices taint.
var DeviceTaints = deviceTaintsUnder(nil, kinds.Pods.Kind, kinds.ResourceClaims.Kind, kinds.ResourceSlices.Kind)

// DeviceTaintRules is the same controller with rules.
var DeviceTaintRules = deviceTaintsUnder(gate.Set{gate.DRADeviceTaintRules: true}, kinds.Pods.Kind, kinds.ResourceClaims.Kind, kinds.ResourceSlices.Kind, kinds.DeviceTaintRules.Kind)

func deviceTaintsUnder(gates gate.Set, served ...kinds.Kind) stage.Life {
	return stage.Life{
		Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
			devices := f.Resource().V1()
			tc := upstreamtaints.New(c, f.Core().V1().Pods(), devices.ResourceClaims(), devices.ResourceSlices(), f.Resource().V1beta2().DeviceTaintRules(), devices.DeviceClasses(), "device-taint-eviction-controller", false)
			return func() { _ = tc.Run(ctx, 1) }, nil // it fails only if informers are stopped
		},
		Ours: devicetainteviction.New(gates), Gates: gates, Kinds: served, Chapter: 30 * time.Second, Line: deviceTaintLine, Omit: calledOffWhenDeleted,
	}
}

// deviceTaintLine is a pod's or a rule's status about evictions, without the times of conditions.
func deviceTaintLine(obj metav1.Object) string {
	switch o := obj.(type) {
	case *corev1.Pod:
		line := fmt.Sprintf("pod %s deleted %v", o.UID, o.DeletionTimestamp != nil)
		for _, c := range o.Status.Conditions {
			line += fmt.Sprintf(" %s %s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
		return line
	case *resourcev1beta2.DeviceTaintRule:
		line := "rule " + string(o.UID)
		for _, c := range o.Status.Conditions {
			line += fmt.Sprintf(" %s %s %s %d %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)
		}
		return line
	}
	return ""
}

// calledOffWhenDeleted reports whether an Event of upstream's cancels the deletion of a pod that is already being
// deleted, by upstream or a user: upstream drops such a pod, but plans it again with each change.
func calledOffWhenDeleted(api *apiserver.API, e *corev1.Event) bool {
	if e.Message != "Cancelling deletion" {
		return false
	}
	p := api.Get(events.Ref{Kind: kinds.Pods.Name, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name})
	if p != nil && p.GetUID() == e.InvolvedObject.UID && p.GetDeletionTimestamp() == nil {
		return false
	}
	exemption.Uses("called-off-when-deleted")
	return true
}
