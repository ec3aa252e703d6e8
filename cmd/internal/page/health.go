package page

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// health is the status of an object in a word, as kubectl shows it.
type health struct {
	Status string `json:"status,omitempty"`
	Level  level  `json:"level,omitempty"`
	Node   string `json:"node,omitempty"`
}

// level is how good a status is; empty: unknown.
type level string

const (
	good level = "good"
	poor level = "poor" // not in the desired state yet
	bad  level = "bad"
)

// healthOf is the health in the body of a delta; empty if the body cannot be decoded. That is
// an error when the user opens the object.
func healthOf(kind kinds.Kind, d events.Delta) health {
	object, err := kinds.Decode(kind, d.ContentType, d.Body)
	if err != nil {
		return health{}
	}
	switch o := object.(type) {
	case *corev1.Pod:
		return healthOfPod(o)
	case *corev1.Node:
		return healthOfNode(o)
	case *corev1.Namespace:
		return health{Status: string(o.Status.Phase), Level: levelOf(o.Status.Phase == corev1.NamespaceActive)}
	case *appsv1.Deployment:
		return share(o.Status.ReadyReplicas, o.Spec.Replicas)
	case *appsv1.ReplicaSet:
		return share(o.Status.ReadyReplicas, o.Spec.Replicas)
	case *appsv1.StatefulSet:
		return share(o.Status.ReadyReplicas, o.Spec.Replicas)
	case *corev1.ReplicationController:
		return share(o.Status.ReadyReplicas, o.Spec.Replicas)
	case *appsv1.DaemonSet:
		return share(o.Status.NumberReady, &o.Status.DesiredNumberScheduled)
	case *batchv1.Job:
		return healthOfJob(o)
	case *corev1.PersistentVolumeClaim:
		return health{Status: string(o.Status.Phase), Level: levelOf(o.Status.Phase == corev1.ClaimBound)}
	case *corev1.PersistentVolume:
		return health{Status: string(o.Status.Phase), Level: levelOf(o.Status.Phase != corev1.VolumeFailed)}
	default:
		return health{}
	}
}

func levelOf(ok bool) level {
	if ok {
		return good
	}
	return poor
}

func share(ready int32, wanted *int32) health {
	n := ptr.Deref(wanted, 1)
	return health{Status: fmt.Sprintf("%d/%d ready", ready, n), Level: levelOf(ready >= n)}
}

func healthOfPod(o *corev1.Pod) health {
	h := health{Status: string(o.Status.Phase), Level: poor, Node: o.Spec.NodeName}
	for _, c := range o.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" {
			return health{Status: w.Reason, Level: bad, Node: h.Node}
		}
	}
	switch o.Status.Phase {
	case corev1.PodFailed:
		h.Level = bad
	case corev1.PodSucceeded:
		h.Level = good
	case corev1.PodRunning:
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				h.Level = good
			}
		}
		if h.Level != good {
			h.Status = "Running, not ready"
		}
	}
	return h
}

func healthOfNode(o *corev1.Node) health {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return health{Status: "Ready", Level: good}
		}
	}
	return health{Status: "NotReady", Level: bad}
}

func healthOfJob(o *batchv1.Job) health {
	for _, c := range o.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			return health{Status: "Complete", Level: good}
		case batchv1.JobFailed:
			return health{Status: "Failed", Level: bad}
		case batchv1.JobSuspended:
			return health{Status: "Suspended"}
		}
	}
	return health{Status: fmt.Sprintf("%d active", o.Status.Active), Level: poor}
}
