package tokencleaner

import (
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide finds out when a token expires, and then deletes it.
//
// Upstream: pkg/controller/bootstrap, evalSecret.
func decide(v View, now time.Time) reconcile.Decision {
	switch e := v.Expiry; {
	case v.Secret.DeletionTimestamp != nil:
		return reconcile.Nothing("the Secret is being deleted")
	case e == nil:
		return v.Unread.Ask(now, "it is not known whether the Secret is a bootstrap token, and when it expires", reconcile.AskExpiry(v.Secret))
	case e.Other:
		return reconcile.Nothing("the Secret is not a bootstrap token")
	case e.Unreadable:
		return v.remove("when the token expires cannot be read, so it counts as expired")
	case e.At == nil:
		return reconcile.Nothing("the token does not expire")
	case now.Before(*e.At):
		return reconcile.Wake(*e.At, "the token has not expired")
	default:
		return v.remove("the token has expired")
	}
}

// remove deletes the token at the version that was seen.
func (v View) remove(because string) reconcile.Decision {
	return reconcile.Do(because, reconcile.Delete(kinds.Secrets.Kind, v.Secret, reconcile.IfUnchanged(v.Secret)))
}
