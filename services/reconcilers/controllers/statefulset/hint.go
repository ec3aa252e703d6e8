package statefulset

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// hint is an Event that the controller records once while its cause lasts. The name
// identifies the cause.
type hint struct {
	name   string
	notice *events.Notice
}

// note is what a report stores for the next one: the names of the hints that were told
// and still apply.
type note struct {
	Told []string `json:"told"`
}

// remember reads the notes of the last report.
func (v *View) remember(results []events.Result) {
	for _, r := range results {
		n := note{}
		if r.Answer != nil && json.Unmarshal(r.Answer.Note, &n) == nil {
			v.Told = append(v.Told, n.Told...)
		}
	}
}

// telling returns the Events of hints that have not been told, followed by the note of
// all hints; none if there is no hint.
func (s stage) telling() []events.Command {
	var commands []events.Command
	n := note{}
	for _, h := range s.hints() {
		if !slices.Contains(s.Told, h.name) {
			commands = append(commands, reconcile.Record(*h.notice))
		}
		n.Told = append(n.Told, h.name)
	}
	if len(n.Told) == 0 {
		return nil
	}
	return append(commands, events.Command{Verb: events.VerbRecord, Note: reconcile.Body(n)})
}

// hints are those of the positions that [stage.fill] reaches.
func (s stage) hints() []hint {
	if s.Set.DeletionTimestamp != nil {
		return nil
	}
	var all []hint
	for at := range s.replicas {
		r := s.replica(at)
		all = append(all, r.hints...)
		if r.wait != "" && !s.atOnce() {
			break
		}
	}
	return all
}

// blocked is the hint that a pod is not created because claims of it are being deleted.
//
// Upstream: CreateStatefulPod and createPersistentVolumeClaims.
func (s stage) blocked(ordinal int, leaving []*corev1.PersistentVolumeClaim) hint {
	var reasons, uids []string
	for _, c := range leaving {
		reasons, uids = append(reasons, "pvc "+c.Name+" is being deleted"), append(uids, string(c.UID))
	}
	reason := strings.Join(reasons, ", ")
	if len(reasons) > 1 {
		reason = "[" + reason + "]"
	}
	return hint{
		name: "blocked " + s.name(ordinal) + " " + strings.Join(uids, " "),
		notice: s.notice(corev1.EventTypeWarning, "FailedCreate",
			"Create Pod "+s.name(ordinal)+" in StatefulSet "+s.Set.Name+" failed error: "+reason),
	}
}

// conflicts are the hints that claims of a pod have another controller, where no update
// of their owners reports it.
//
// Upstream: UpdatePodClaimForRetentionPolicy.
func (s stage) conflicts(ordinal int, p *corev1.Pod) []hint {
	var all []hint
	for _, b := range s.bonds(ordinal, p) {
		if b.settled() && b.conflicting() {
			all = append(all, hint{name: "conflict " + string(b.UID), notice: b.conflict()})
		}
	}
	return all
}
