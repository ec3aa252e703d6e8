package job

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// note is what a turn that acts hands on to the next one, since only the last outcome is
// remembered. A pod takes its time to go, and meanwhile others may be created, or be too many.
type note struct {
	Surplus []types.UID `json:"surplus,omitempty"`
	// Claims is set where pods only changed hands: a pod that is gone since was not counted.
	Claims bool `json:"claims,omitempty"`
}

// claims is the note of a turn in which pods change hands.
var claims = note{Claims: true}

// handOn has the next turn know, besides what n says, which pods were too many before this
// one, and which that need not be let go are deleted by it: of those that are let go as
// well, their two results tell.
func (v View) handOn(d reconcile.Decision, n note) reconcile.Decision {
	at := slices.IndexFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.Act })
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

// deletedFree are the pods that commands delete and that nothing holds back.
func (v View) deletedFree(commands []events.Command) (deleted []types.UID) {
	if !slices.ContainsFunc(commands, func(c events.Command) bool { return c.Verb == events.VerbDelete }) {
		return nil // as a rule, and there may be thousands that ended
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

// handedOn is what the notes of a turn say together.
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

// with adds to pods that were too many those that were handed on as such, as far as they
// are still there, and on their way out: a delete may have been refused.
func (v View) with(surplus, handed []types.UID) []types.UID {
	for _, uid := range handed {
		leaving := slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return p.UID == uid && p.DeletionTimestamp != nil })
		if leaving && !slices.Contains(surplus, uid) {
			surplus = append(surplus, uid)
		}
	}
	return surplus
}
