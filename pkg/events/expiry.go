package events

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubExpiry is the subresource of an ask for the expiry of a bootstrap token, which is a Secret
// in kube-system. The API server has no such subresource: the writer reads the Secret live. The
// answer is [Expiry], and contains nothing else from the Secret.
const SubExpiry = "expiry"

// Expiry is the expiry of a bootstrap token Secret.
type Expiry struct {
	// Other is true for a Secret of another type. The type cannot change.
	Other bool `json:"other,omitempty"`
	// Unreadable is true when the Secret's expiration is no valid time. Such a token counts as
	// expired.
	Unreadable bool `json:"unreadable,omitempty"`
	// At is the expiry; nil when the Secret has none and so does not expire.
	At *time.Time `json:"at,omitempty"`
}

// Passed reports whether a token has expired.
func (e Expiry) Passed(now time.Time) bool {
	return !e.Other && (e.Unreadable || e.At != nil && !now.Before(*e.At))
}

// The format of bootstrap tokens.
//
// Upstream: k8s.io/cluster-bootstrap/token/api.
const (
	// BootstrapToken is the type of a bootstrap token Secret.
	BootstrapToken corev1.SecretType = "bootstrap.kubernetes.io/token"
	// expiration is the data key with the expiry.
	expiration = "expiration"
)

// The first and the last time that JSON can represent. A token's expiry outside of them is
// clamped, which means the same.
var (
	firstTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// ExpiryOf reads the expiry of a Secret.
//
// Upstream: k8s.io/cluster-bootstrap/util/secrets, GetExpiration.
func ExpiryOf(secret *corev1.Secret) Expiry {
	text := string(secret.Data[expiration])
	switch at, err := time.Parse(time.RFC3339, text); {
	case secret.Type != BootstrapToken:
		return Expiry{Other: true}
	case text == "":
		return Expiry{}
	case err != nil:
		return Expiry{Unreadable: true}
	case at.Before(firstTime):
		return Expiry{At: &firstTime}
	case at.After(lastTime):
		return Expiry{At: &lastTime}
	default:
		at = at.UTC()
		return Expiry{At: &at}
	}
}

// AsksExpiry reports whether a command asks for the expiry of a token: the only ask whose answer
// may reveal data of a Secret.
func (c Command) AsksExpiry() bool {
	return c.Verb == VerbAsk && c.Kind == kinds.Secrets.Name && c.Of == nil && c.Subresource == SubExpiry
}
