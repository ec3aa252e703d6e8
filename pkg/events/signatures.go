package events

import (
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubSignatures is the subresource of a patch by which the ConfigMap cluster-info in
// kube-public has a signature of each bootstrap token that signs. The API server has none of
// that name: the writer reads the tokens and the ConfigMap live, signs, and replaces the
// ConfigMap where signatures are missing, wrong, or of no such token. The body of the patch is
// empty. The answer is [Signatures]; the signatures are in the ConfigMap, which everybody may
// read, and the tokens in no message.
const SubSignatures = "signatures"

// ClusterInfo is the name of that ConfigMap.
//
// Upstream: k8s.io/cluster-bootstrap/token/api.
const ClusterInfo = "cluster-info"

// Signatures is what is told of them.
type Signatures struct {
	// Until is when the first of the tokens expires; nil where none of them does.
	Until *time.Time `json:"until,omitempty"`
	// By are the names of the tokens that signed.
	By []string `json:"by,omitempty"`
}

// Signs tells whether a command is such a patch.
func (c Command) Signs() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.ConfigMaps.Name && c.Subresource == SubSignatures
}

// signingName is the name of a token that signs.
var signingName = regexp.MustCompile(`^bootstrap-token-([a-z0-9]{6})$`)

// MaySign tells whether a Secret may be a token that signs, by its name, and the id that it
// is to have then.
//
// Upstream: k8s.io/cluster-bootstrap/util/secrets, ParseName.
func MaySign(secret metav1.Object) (id string, may bool) {
	if found := signingName.FindStringSubmatch(secret.GetName()); found != nil && secret.GetNamespace() == metav1.NamespaceSystem {
		return found[1], true
	}
	return "", false
}

// SignerOf is the id and the secret of a token that signs; may is false for a Secret that
// does not.
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
