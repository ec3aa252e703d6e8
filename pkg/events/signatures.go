package events

import (
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

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

// Signs reports whether the command is a [SubSignatures] patch.
func (c Command) Signs() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.ConfigMaps.Name && c.Subresource == SubSignatures
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
