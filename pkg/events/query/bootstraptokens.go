package query

import (
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// SubSignatures is the subresource of a patch that puts the signatures of the signing bootstrap
// tokens into the ConfigMap cluster-info in kube-public. The API server has no such subresource:
// the writer reads the tokens and the ConfigMap live, signs, and replaces the ConfigMap if
// signatures are missing, wrong, or of other tokens. The body of the patch is empty. The answer
// is [Signatures]. The signatures are in the ConfigMap, which every user may read; the tokens
// are in no message.
const SubSignatures = "signatures"

// ClusterInfo is the name of the ConfigMap with the signatures.
//
// Upstream: k8s.io/cluster-bootstrap/token/api.
const ClusterInfo = "cluster-info"

// Signatures is the answer to a [SubSignatures] patch.
type Signatures struct {
	// Until is the first expiry of the tokens; nil when none of them expires.
	Until *time.Time `json:"until,omitempty"`
	// By are the names of the tokens that signed.
	By []string `json:"by,omitempty"`
}

// signingName matches the name of a bootstrap token Secret.
var signingName = regexp.MustCompile(`^bootstrap-token-([a-z0-9]{6})$`)

// MaySign reports whether a Secret may be a signing token by its namespace and name, and gives the
// id that the name implies.
//
// Upstream: k8s.io/cluster-bootstrap/util/secrets, ParseName.
func MaySign(secret metav1.Object) (id string, may bool) {
	if found := signingName.FindStringSubmatch(secret.GetName()); found != nil && secret.GetNamespace() == metav1.NamespaceSystem {
		return found[1], true
	}
	return "", false
}

// SignerOf is the id and the secret of a signing token; may is false for a Secret that does not
// sign.
//
// Upstream: pkg/controller/bootstrap, validateSecretForSigning.
func SignerOf(secret *corev1.Secret, now time.Time) (id, key string, may bool) {
	id, may = MaySign(secret)
	said := func(field string) string { return string(secret.Data[field]) }
	switch {
	case !may, said("token-id") != id, said("token-secret") == "", said("usage-bootstrap-signing") != "true":
		return "", "", false
	case secret.Type != BootstrapToken, ExpiryOf(secret).Passed(now):
		return "", "", false
	default:
		return id, said("token-secret"), true
	}
}
