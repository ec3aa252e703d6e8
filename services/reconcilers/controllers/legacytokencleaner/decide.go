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

// day is the format of dates, which are days in UTC.
const day = time.DateOnly

// decide waits until a token is known to have been unused for the period, then declares
// it invalid, and after another period deletes it. Both commands require that the Secret
// is unchanged, so a use that the API server records in between keeps it.
//
// Upstream: pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go
func decide(v View, now time.Time) reconcile.Decision {
	unused, known := v.unused()
	ended, declared := v.ended()
	switch {
	case v.Secret.DeletionTimestamp != nil:
		return reconcile.Nothing("the Secret is being deleted")
	case v.Other:
		return reconcile.Nothing("the Secret is not a service account token")
	case !known:
		return v.wait(now, time.Time{}, "it is not known since when the token has not been used")
	case now.Before(unused):
		return v.wait(now, unused, "the token may have been used not long ago")
	case !v.Listed:
		return v.wait(now, time.Time{}, "the token was not made by Kubernetes, as far as can be seen")
	case v.Needed:
		return v.wait(now, time.Time{}, "a pod has the token")
	case !declared:
		return reconcile.Do("the token has not been used for long enough: it is marked invalid", v.declare(now))
	case now.Before(ended):
		return v.wait(now, ended, "the token has been declared invalid")
	default:
		return reconcile.Do("the token has been invalid for long enough", reconcile.ProveToken(v.Secret),
			reconcile.Delete(kinds.Secrets.Kind, v.Secret, reconcile.IfUnchanged(v.Secret)))
	}
}

// wait requests a wake at until, and at the latest within a day, because a change of what
// keeps a token asks for no turn.
func (v View) wait(now, until time.Time, because string) reconcile.Decision {
	next := period.Next(v.Secret.UID, again, now)
	if until.After(now) && until.Before(next) {
		next = until
	}
	return reconcile.Wake(next, because)
}

// declare labels a token as invalid since today. The API server refuses the patch if the
// Secret is no token.
func (v View) declare(now time.Time) events.Command {
	labels := map[string]string{invalidSince: now.UTC().Format(day)}
	body := reconcile.Body(map[string]any{"metadata": map[string]any{"labels": labels}, "type": corev1.SecretTypeServiceAccountToken})
	return reconcile.Patch(kinds.Secrets.Kind, v.Secret, types.MergePatchType, body, reconcile.IfUnchanged(v.Secret))
}

// unused returns when a token will have been unused for a whole period, as far as is
// known: the token is that old, its last use is that long ago, and the API server has
// recorded uses for that long. known is false if one of these dates cannot be parsed.
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

// ended returns when a token will have been invalid for a whole period; declared is false
// if it has no label with a valid date.
func (v View) ended() (at time.Time, declared bool) {
	from, err := time.Parse(day, v.Secret.Labels[invalidSince])
	return after(from, v.Period), err == nil
}

// after returns the end of a day plus a period.
func after(date time.Time, period time.Duration) time.Time { return date.AddDate(0, 0, 1).Add(period) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
