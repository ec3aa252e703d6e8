package legacytokencleaner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/period"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// day is how dates are written. Days are those of UTC.
const day = time.DateOnly

// decide waits until a token can be said not to have been used for long enough, then
// declares it invalid, and a period later deletes it. The version of the Secret is a
// condition of both: a use that is noted in between keeps it.
//
// Upstream: pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go
func decide(v View, now time.Time) reconcile.Decision {
	unused, known := v.unused()
	ended, declared := v.ended()
	switch {
	case v.Secret.DeletionTimestamp != nil:
		return reconcile.Nothing("the Secret is being deleted")
	case v.Other:
		return reconcile.Nothing("the Secret is no token")
	case !known:
		return v.wait(now, time.Time{}, "it is not known since when the token has not been used")
	case now.Before(unused):
		return v.wait(now, unused, "the token may have been used not long ago")
	case !v.Listed:
		return v.wait(now, time.Time{}, "the token was not made by Kubernetes, as far as can be seen")
	case v.Needed:
		return v.wait(now, time.Time{}, "a pod has the token")
	case !declared:
		return reconcile.Do("nobody has used the token for long enough: it is declared invalid", v.declare(now))
	case now.Before(ended):
		return v.wait(now, ended, "the token has been declared invalid")
	default:
		return reconcile.Do("the token has been invalid for long enough", reconcile.ProveToken(v.Secret),
			reconcile.Delete(kinds.Secrets.Kind, v.Secret, reconcile.IfUnchanged(v.Secret)))
	}
}

// wait looks again at a moment, and in any case every day: what keeps a token makes no
// turn when it changes.
func (v View) wait(now, until time.Time, because string) reconcile.Decision {
	next := period.Next(v.Secret.UID, again, now)
	if until.After(now) && until.Before(next) {
		next = until
	}
	return reconcile.Wake(next, because)
}

// declare says since when a token is invalid, and is refused for what is no token.
func (v View) declare(now time.Time) events.Command {
	labels := map[string]string{invalidSince: now.UTC().Format(day)}
	body := reconcile.Body(map[string]any{"metadata": map[string]any{"labels": labels}, "type": corev1.SecretTypeServiceAccountToken})
	return reconcile.Patch(kinds.Secrets.Kind, v.Secret, types.MergePatchType, body, reconcile.IfUnchanged(v.Secret))
}

// unused is when a token will not have been used for a whole period, as far as is
// known: it is that old, its last use is that long ago, and uses have been noted for
// that long. known is false when one of these is written so that it cannot be read.
func (v View) unused() (at time.Time, known bool) {
	noted, err := time.Parse(day, v.Since)
	if err != nil {
		return time.Time{}, false
	}
	at = later(after(noted, v.Period), v.Secret.CreationTimestamp.Add(v.Period))
	if used, ok := v.Secret.Labels[lastUsed]; ok {
		last, err := time.Parse(day, used)
		if err != nil {
			return time.Time{}, false
		}
		at = later(at, after(last, v.Period))
	}
	return at, true
}

// ended is when a token will have been invalid for a whole period; declared is false
// when it has not been declared so, or it cannot be read when.
func (v View) ended() (at time.Time, declared bool) {
	from, err := time.Parse(day, v.Secret.Labels[invalidSince])
	return after(from, v.Period), err == nil
}

// after is when a period has passed since the end of a day.
func after(date time.Time, period time.Duration) time.Time { return date.AddDate(0, 0, 1).Add(period) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
