package persistentvolumebinder

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The reasons of Events.
//
// Upstream: pkg/controller/volume/events.
const (
	waitForConsumer      = "WaitForFirstConsumer"
	waitForPod           = "WaitForPodScheduled"
	failedBinding        = "FailedBinding"
	mismatch             = "VolumeMismatch"
	lost                 = "ClaimLost"
	misbound             = "ClaimMisbound"
	provisioningFailed   = "ProvisioningFailed"
	externalProvisioning = "ExternalProvisioning"
	unknownPolicy        = "VolumeUnknownReclaimPolicy"
	failedDelete         = "VolumeFailedDelete"
	failedRecycle        = "VolumeFailedRecycle"
)

func normal(reason, message string) events.Notice {
	return events.Notice{Type: corev1.EventTypeNormal, Reason: reason, Message: message}
}

func warning(reason, message string) events.Notice {
	return events.Notice{Type: corev1.EventTypeWarning, Reason: reason, Message: message}
}

// again is when the same Event is recorded again. An API server keeps Events for an hour, and a
// user who looks at a waiting claim must find the reason.
const again = 15 * time.Minute

// waits sets the claim to Pending and records an Event, unless that was recorded a short while
// ago.
//
// Upstream: each sync tells it, every 15 seconds or more often.
func (v View) waits(now time.Time, because string, notice events.Notice) reconcile.Decision {
	d := v.tell(now, because, notice)
	d.Commands = append(v.pending(because).Commands, d.Commands...)
	return d
}

// tell records an Event about the claim.
func (v View) tell(now time.Time, because string, notice events.Notice) reconcile.Decision {
	notice.About = reconcile.About(kinds.PersistentVolumeClaims.Kind, v.Claim)
	return v.record(now, because, notice)
}

// told is the note of an Event.
type told struct {
	Told string `json:"told"`
}

// record records Events, unless all of them were recorded a short while ago.
func (v View) record(now time.Time, because string, notices ...events.Notice) reconcile.Decision {
	until := v.ToldAt.Add(again)
	d := reconcile.Decision{Because: because}
	fresh := now.Before(until)
	for _, n := range notices {
		text := n.Reason + ": " + n.Message
		fresh = fresh && slices.Contains(v.Told, text)
		c := reconcile.Record(n)
		c.Note = reconcile.Body(told{text})
		d.Commands = append(d.Commands, c)
	}
	if fresh {
		return reconcile.Wake(until, because)
	}
	return d
}
