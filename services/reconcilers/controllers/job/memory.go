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
// remembered. A pod takes its time to go, and meanwhile others may be born, or be too many.
type note struct {
	Surplus []types.UID `json:"surplus,omitempty"`
}

// handOn has the next turn know which pods were too many before this one.
func (v View) handOn(d reconcile.Decision) reconcile.Decision {
	at := slices.IndexFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.Act })
	if at < 0 || len(v.Surplus) == 0 {
		return d
	}
	d.Commands = slices.Clone(d.Commands)
	d.Commands[at].Note = reconcile.Body(note{v.Surplus})
	return d
}

// with adds to pods that were too many those that were so before, as far as they are
// still there.
func (v View) with(surplus []types.UID, results []events.Result) []types.UID {
	for _, r := range results {
		var n note
		if r.Answer == nil || json.Unmarshal(r.Answer.Note, &n) != nil {
			continue
		}
		for _, uid := range n.Surplus {
			there := slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return p.UID == uid })
			if there && !slices.Contains(surplus, uid) {
				surplus = append(surplus, uid)
			}
		}
	}
	return surplus
}
