package events

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubExpiry is the subresource of an ask when a bootstrap token expires, which is a Secret in
// kube-system. The API server has none of that name: the writer reads the Secret live. The
// answer is [Expiry], and nothing else of what the Secret holds.
const SubExpiry = "expiry"

// Expiry is when a Secret expires that is a bootstrap token.
type Expiry struct {
	// Other is true for a Secret of another type. That cannot change.
	Other bool `json:"other,omitempty"`
	// Unreadable is true where the Secret says something that is no time. Such a token counts
	// as expired.
	Unreadable bool `json:"unreadable,omitempty"`
	// At is the time; nil where the Secret names none, and does not expire.
	At *time.Time `json:"at,omitempty"`
}

// Passed tells whether a token has expired.
func (e Expiry) Passed(now time.Time) bool {
	return !e.Other && (e.Unreadable || e.At != nil && !now.Before(*e.At))
}

// What bootstrap tokens look like.
//
// Upstream: k8s.io/cluster-bootstrap/token/api.
const (
	// BootstrapToken is the type of such a Secret.
	BootstrapToken corev1.SecretType = "bootstrap.kubernetes.io/token"
	// expiration is where it says when it expires.
	expiration = "expiration"
)

// The times that JSON has a form for. A user who writes another one into a token says the same
// by the first or the last of them.
var (
	firstTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// ExpiryOf is what a Secret says of its expiry.
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

// AsksExpiry tells whether a command asks when a token expires: the only question whose
// answer may tell anything of what is in a Secret.
func (c Command) AsksExpiry() bool {
	return c.Verb == VerbAsk && c.Kind == kinds.Secrets.Name && c.Of == nil && c.Subresource == SubExpiry
}
