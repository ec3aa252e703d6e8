package statefulset

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// hint is something that users are told once while it is so. Its name tells it from
// others.
type hint struct {
	name   string
	notice *events.Notice
}

// note is what a report keeps for the one after it: the names of the hints that have
// been told and are still so.
type note struct {
	Told []string `json:"told"`
}

// remember takes in what the last report noted.
func (v *View) remember(results []events.Result) {
	for _, r := range results {
		n := note{}
		if r.Answer != nil && json.Unmarshal(r.Answer.Note, &n) == nil {
			v.Told = append(v.Told, n.Told...)
		}
	}
}

// telling are the Events of hints that have not been told, behind them the note of all;
// none where there is no hint.
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

// hints are those of the positions that [stage.fill] comes to.
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

// blocked says that a pod is not created because claims of it are being deleted.
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

// conflicts say that claims of a pod have another controller, where no update of their
// owners tells so.
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
