package reconcile

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// FillToken has the writer fill in the token of an account, as long as the Secret is as
// it is seen ([events.SubToken]).
func FillToken(secret metav1.Object, account string, uid types.UID, with ...Option) events.Command {
	annotations := map[string]string{corev1.ServiceAccountNameKey: account, corev1.ServiceAccountUIDKey: string(uid)}
	body := Body(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	c := Patch(kinds.Secrets.Kind, secret, types.MergePatchType, body, IfUnchanged(secret))
	c.Subresource = events.SubToken
	return options(c, with)
}

// SignClusterInfo has the writer give cluster-info the signatures of the tokens that sign, as
// long as it is as it is seen ([events.SubSignatures]).
func SignClusterInfo(configMap metav1.Object, with ...Option) events.Command {
	c := Patch(kinds.ConfigMaps.Kind, configMap, types.MergePatchType, Body(map[string]any{}), IfUnchanged(configMap))
	c.Subresource = events.SubSignatures
	return options(c, with)
}

// ProveToken proves that a Secret is a token: a patch that says the type changes nothing
// in a token, and is refused as invalid for every other Secret, since the type of
// one cannot be changed.
func ProveToken(secret metav1.Object, with ...Option) events.Command {
	body := Body(map[string]any{"type": corev1.SecretTypeServiceAccountToken})
	c := Patch(kinds.Secrets.Kind, secret, types.MergePatchType, body, IfUnchanged(secret))
	return options(c, with)
}

// Noting makes a note that comes back in the command's result, whatever becomes of it.
func Noting(note any) Option {
	return func(c *events.Command) { c.Note = Body(note) }
}
