package check

import (
	"fmt"
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// The kinds of workloads other than Deployments.
const (
	statefulSets           = kinds.Name("statefulsets.apps")
	daemonSets             = kinds.Name("daemonsets.apps")
	jobs                   = kinds.Name("jobs.batch")
	cronJobs               = kinds.Name("cronjobs.batch")
	replicationControllers = kinds.Name("replicationcontrollers")
	budgets                = kinds.Name("poddisruptionbudgets.policy")
)

// kindOf is the kind of an object; "" if the storage never had it.
func (b *books) kindOf(uid types.UID) kinds.Name {
	if life := b.lives[uid]; len(life) > 0 {
		return life[0].Object.Ref.Kind
	}
	return ""
}

// at is an object at a revision; nil if it did not exist.
func (b *books) at(uid types.UID, revision int64) *Object {
	life := b.lives[uid]
	n := sort.Search(len(life), func(i int) bool { return life[i].Revision > revision })
	if n == 0 || life[n-1].Gone {
		return nil
	}
	return &life[n-1].Object
}

// wasReady is whether a pod was ready at any time between two revisions.
func (b *books) wasReady(uid types.UID, from, to int64) bool {
	return slices.ContainsFunc(b.between(uid, from, to), func(o *Object) bool { return o.Ready })
}

// member judges the creation of a pod of a StatefulSet: the spec must have requested its ordinal,
// and, with ordered creation, the pods before it must have been ready as far as the controller
// could know.
func (b *books) member(set types.UID, c *Change) (Violation, bool) {
	turn := b.turnOf(edition{c.Object.UID, c.Revision})
	versions := b.between(set, decidedAt(turn), c.Revision)
	most, ordered := int32(0), true
	for _, v := range versions {
		most, ordered = max(most, v.Start+v.Replicas), ordered && v.Ordered
	}
	if len(versions) == 0 {
		return Violation{}, false
	}
	if c.Object.Index >= most {
		return violation(b.evidence(turn, c), "%v was created, and %s never asked for ordinals beyond %d since that was decided",
			c.Object.Ref, b.name(set), most-1), true
	}
	looked := int64(0)
	if turn != nil {
		looked = b.reached(turn, pods)
	}
	if !ordered || looked == 0 {
		return Violation{}, false
	}
	before := map[int32]bool{}
	for _, uid := range b.owned[set] {
		if o := b.lives[uid][0].Object; b.wasReady(uid, looked, c.Revision) {
			before[o.Index] = true
		}
	}
	for i := versions[0].Start; i < c.Object.Index; i++ {
		if !before[i] {
			return violation(b.evidence(turn, c), "%v was created in order while pod %d of %s was not ready", c.Object.Ref, i, b.name(set)), true
		}
	}
	return Violation{}, false
}

// daemon judges the creation of a pod of a DaemonSet: at most one on each node, or two with a
// surge.
func (b *books) daemon(w *world, set types.UID, c *Change) (Violation, bool) {
	turn := b.turnOf(edition{c.Object.UID, c.Revision})
	versions, allowed := b.between(set, decidedAt(turn), c.Revision), 1
	for _, v := range versions {
		if v.Surge > 0 {
			allowed = 2
		}
	}
	now := 1
	for _, o := range w.owned[set] {
		if o.Active && o.Node == c.Object.Node {
			now++
		}
	}
	if len(versions) == 0 || c.Object.Node == "" || now <= allowed {
		return Violation{}, false
	}
	return violation(b.evidence(turn, c), "%v is pod %d of %s on %s", c.Object.Ref, now, b.name(set), c.Object.Node), true
}

// run judges the Jobs of a CronJob: no scheduled time has two Jobs, and with the policy Forbid
// none is created while another one is active, as far as the controller could know.
func (b *books) run(cron types.UID, c *Change) (found []Violation) {
	turn := b.turnOf(edition{c.Object.UID, c.Revision})
	versions := b.between(cron, decidedAt(turn), c.Revision)
	forbidden := len(versions) > 0
	for _, v := range versions {
		forbidden = forbidden && v.Forbids
	}
	looked := int64(0)
	if turn != nil {
		looked = b.reached(turn, jobs)
	}
	for _, uid := range b.owned[cron] {
		first := b.lives[uid][0]
		if uid == c.Object.UID || first.Revision > c.Revision {
			continue
		}
		if first.Object.Moment != "" && first.Object.Moment == c.Object.Moment {
			found = append(found, violation(b.evidence(turn, c), "%v is the second Job of %s for %s, after %v", c.Object.Ref, b.name(cron), c.Object.Moment, first.Object.Ref))
		}
		if then, now := b.at(uid, looked), b.at(uid, c.Revision); forbidden && looked > 0 && atWork(then) && atWork(now) {
			found = append(found, violation(b.evidence(turn, c), "%v was created while %v was at work, which %s forbids", c.Object.Ref, first.Object.Ref, b.name(cron)))
		}
	}
	return found
}

func atWork(job *Object) bool { return job != nil && !job.Done && !job.Deleting }

// ran: no scheduled run happens twice, and no Job counts a completion that did not happen.
func ran(b *books) []Violation {
	var found []Violation
	b.replay(func(_ *world, before *Object, c *Change) {
		if c.Gone {
			return
		}
		owner := controllerOf(&c.Object)
		switch kind := c.Object.Ref.Kind; {
		case kind == jobs && before == nil && owner != nil:
			found = append(found, b.run(owner.UID, c)...)
		case kind == jobs && before != nil && c.Object.Succeeded > before.Succeeded:
			if n := b.succeeded(c.Object.UID, c.Revision); int(c.Object.Succeeded) > n {
				found = append(found, violation(b.evidence(b.turnOf(edition{c.Object.UID, c.Revision}), c),
					"%v counts %d completions, and %d of its pods have succeeded", c.Object.Ref, c.Object.Succeeded, n))
			}
		case kind == jobs && before != nil && c.Object.Done && !before.Done && c.Object.Succeeded > c.Object.Completions:
			found = append(found, violation(b.evidence(nil, c), "%v has %d completions of %d", c.Object.Ref, c.Object.Succeeded, c.Object.Completions))
		}
	})
	return found
}

// succeeded counts the pods of a Job that have succeeded by a revision, and each index only
// once.
func (b *books) succeeded(job types.UID, by int64) int {
	seen := map[string]bool{}
	for _, uid := range b.owned[job] {
		for _, c := range b.lives[uid] {
			if c.Revision <= by && c.Object.EndedWell {
				of := string(uid)
				if c.Object.Index >= 0 {
					of = fmt.Sprint(c.Object.Index)
				}
				seen[of] = true
			}
		}
	}
	return len(seen)
}
