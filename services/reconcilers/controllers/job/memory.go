package job

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// note is what an acting turn hands on to the next one, because the memory keeps only the
// last outcome of a key. A pod takes time to terminate, and meanwhile other turns may
// create or delete pods.
type note struct {
	Surplus []types.UID `json:"surplus,omitempty"`
	// Claims is true for a turn that only adopted or released pods. If such a pod has
	// disappeared since, it was not counted.
	Claims bool `json:"claims,omitempty"`
}

// claims is the note of a turn that adopts or releases pods.
var claims = note{Claims: true}

// handOn adds to the decision's note the pods that were surplus before this turn, and the
// pods without a finalizer that this turn deletes. A pod with the finalizer is recognised
// without a note, by its two results: one of the patch, one of the delete.
func (v View) handOn(d reconcile.Decision, n note) reconcile.Decision {
	at := slices.IndexFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.LaneWrite })
	if at < 0 {
		return d
	}
	n.Surplus = slices.Concat(v.Surplus, v.deletedFree(d.Commands))
	if len(n.Surplus) == 0 && !n.Claims {
		return d
	}
	d.Commands = slices.Clone(d.Commands)
	d.Commands[at].Note = reconcile.Body(n)
	return d
}

// deletedFree returns the pods that the commands delete and that have no finalizer.
func (v View) deletedFree(commands []events.Command) (deleted []types.UID) {
	if !slices.ContainsFunc(commands, func(c events.Command) bool { return c.Verb == events.VerbDelete }) {
		return nil // the common case: skip the loop, there may be thousands of ended pods
	}
	free := map[string]types.UID{}
	for _, p := range v.Pods {
		if !counted(p) {
			free[p.Name] = p.UID
		}
	}
	for _, c := range commands {
		if uid, ok := free[c.Name]; ok && c.Verb == events.VerbDelete {
			deleted = append(deleted, uid)
		}
	}
	return deleted
}

// handedOn merges the notes of a turn.
func handedOn(results []events.Result) (all note) {
	for _, r := range results {
		var n note
		if r.Answer == nil || json.Unmarshal(r.Answer.Note, &n) != nil {
			continue
		}
		all.Surplus = append(all.Surplus, n.Surplus...)
		all.Claims = all.Claims || n.Claims
	}
	return all
}

// with adds the handed-on surplus pods to surplus if they still exist and are
// terminating: a delete may have been refused.
func (v View) with(surplus, handed []types.UID) []types.UID {
	for _, uid := range handed {
		leaving := slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return p.UID == uid && p.DeletionTimestamp != nil })
		if leaving && !slices.Contains(surplus, uid) {
			surplus = append(surplus, uid)
		}
	}
	return surplus
}
