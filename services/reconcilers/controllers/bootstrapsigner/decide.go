package bootstrapsigner

import (
	"time"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// rest is the delay before the same content is signed again. It applies if a token should already
// have expired when the writer signed, because then the writer's clock is behind; and if the writer
// signed with a token that is not visible. Such a token appears later, or was deleted before it
// did; then only this repetition removes its signature.
const rest = 10 * time.Second

// decide asks the writer to sign cluster-info when something has changed since the last signing.
//
// Upstream: pkg/controller/bootstrap, signConfigMap, which does not notice that a token
// expires.
func decide(v View, now time.Time) reconcile.Decision {
	switch again := v.again(); {
	case v.Unfit:
		return reconcile.Nothing("the API server rejects the signatures")
	case !v.Signed:
		return v.sign("the ConfigMap or a token has changed, and signatures may be missing")
	case again.IsZero():
		return reconcile.Nothing("the ConfigMap has its signatures, and no signing token expires")
	case now.Before(again) && v.Unseen:
		return reconcile.Wake(again, "a signing token exists that the cache does not have")
	case now.Before(again):
		return reconcile.Wake(again, "the ConfigMap has its signatures until a token expires")
	case v.Unseen:
		return v.sign("a token signed that is not seen, and may be gone")
	default:
		return v.sign("a token has expired, and its signature goes")
	}
}

// again returns when the ConfigMap must be signed again; zero if only a change requires that.
func (v View) again() time.Time {
	switch {
	case v.Unseen, v.Until != nil && !v.At.Before(*v.Until):
		return v.At.Add(rest)
	case v.Until == nil:
		return time.Time{}
	default:
		return *v.Until
	}
}

func (v View) sign(because string) reconcile.Decision {
	return reconcile.Do(because, reconcile.SignClusterInfo(v.ConfigMap, reconcile.Noting(note{Tokens: v.Tokens})))
}
