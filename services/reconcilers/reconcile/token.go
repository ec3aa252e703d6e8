package reconcile

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// FillToken asks the writer to fill in the token of a service account, if the Secret is
// unchanged ([query.SubToken]).
func FillToken(secret metav1.Object, account string, uid types.UID, with ...Option) events.Command {
	annotations := map[string]string{corev1.ServiceAccountNameKey: account, corev1.ServiceAccountUIDKey: string(uid)}
	body := Body(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	c := Patch(kinds.Secrets.Kind, secret, types.MergePatchType, body, IfUnchanged(secret))
	c.Subresource = query.SubToken
	return options(c, with)
}

// SignClusterInfo asks the writer to sign cluster-info with the bootstrap tokens that sign,
// if the ConfigMap is unchanged ([query.SubSignatures]).
func SignClusterInfo(configMap metav1.Object, with ...Option) events.Command {
	c := Patch(kinds.ConfigMaps.Kind, configMap, types.MergePatchType, Body(map[string]any{}), IfUnchanged(configMap))
	c.Subresource = query.SubSignatures
	return options(c, with)
}

// ProveToken proves that a Secret is a service account token with a patch that sets the type.
// The patch changes nothing in a token. The API server refuses it as invalid for every other
// Secret, because a Secret's type is immutable.
func ProveToken(secret metav1.Object, with ...Option) events.Command {
	body := Body(map[string]any{"type": corev1.SecretTypeServiceAccountToken})
	c := Patch(kinds.Secrets.Kind, secret, types.MergePatchType, body, IfUnchanged(secret))
	return options(c, with)
}

// Noting attaches a note to the command, which comes back with its result, whatever that is.
func Noting(note any) Option {
	return func(c *events.Command) { c.Note = Body(note) }
}
