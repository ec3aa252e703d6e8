package oracle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamtaints "k8s.io/kubernetes/pkg/controller/devicetainteviction"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/devicetainteviction"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// DeviceTaints evicts pods from devices that their slices taint.
var DeviceTaints = deviceTaintsUnder(nil, kinds.Pods.Kind, kinds.ResourceClaims.Kind, kinds.ResourceSlices.Kind)

// DeviceTaintRules is the same controller with rules.
var DeviceTaintRules = deviceTaintsUnder(gate.Set{gate.DRADeviceTaintRules: true}, kinds.Pods.Kind, kinds.ResourceClaims.Kind, kinds.ResourceSlices.Kind, kinds.DeviceTaintRules.Kind)

func deviceTaintsUnder(gates gate.Set, served ...kinds.Kind) Life {
	return Life{
		Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
			devices := f.Resource().V1()
			tc := upstreamtaints.New(c, f.Core().V1().Pods(), devices.ResourceClaims(), devices.ResourceSlices(), f.Resource().V1beta2().DeviceTaintRules(), devices.DeviceClasses(), "device-taint-eviction-controller", false)
			return func() { _ = tc.Run(ctx, 1) }, nil // it fails only if informers are stopped
		},
		Ours: devicetainteviction.New(gates), Gates: gates, Kinds: served, Chapter: 30 * time.Second, Line: deviceTaintLine, Fair: fairDeviceTaints,
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

// fairDeviceTaints removes upstream's Event that cancels a deletion which it has already made: upstream drops
// a pod that is being deleted, but plans it again with each change.
func fairDeviceTaints(theirs, ours []string) ([]string, []string) {
	return letLines("called-off-when-deleted", theirs, func(line string) string {
		pod, off := strings.CutSuffix(line, " Cancelling deletion")
		if off && !slices.Contains(ours, line) && slices.Contains(theirs, pod+" Marking for deletion") {
			return ""
		}
		return line
	}), ours
}
