package credentials

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// TokenExpiry finds out when a bootstrap token expires ([query.Expiry]). It does not read a Secret
// of another type: it selects by name and type, and reads only metadata if there is no such Secret.
func TokenExpiry(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	tokens, response := bootstrapTokens(ctx, c, r, r.Name)
	if response.Code != http.StatusOK {
		return response
	}
	answer := query.Expiry{Other: true}
	if len(tokens) == 0 {
		r.Verb, r.Subresource, r.Body = plan.Look, "", nil
		if response = c.Read(ctx, r); response.Code != http.StatusOK {
			return response
		}
	} else {
		answer = query.ExpiryOf(&tokens[0])
		response = plan.Response{Code: response.Code, Object: apiclient.ObjectOf(metav1.PartialObjectMetadata{ObjectMeta: tokens[0].ObjectMeta})}
	}
	response.Body, _ = json.Marshal(answer) // every time in it has a JSON form
	return response
}

// bootstrapTokens lists bootstrap tokens from the storage: the one of a name, or all if the name
// is empty. The tokens must not leave this package, nor may any words about them but the package's
// own.
func bootstrapTokens(ctx context.Context, c *apiclient.Client, r plan.Request, name string) (tokens []corev1.Secret, response plan.Response) {
	selected := fields.OneTermEqualSelector("type", string(query.BootstrapToken))
	if name != "" {
		selected = fields.AndSelectors(fields.OneTermEqualSelector("metadata.name", name), selected)
	}
	// At -v=8 the client library logs what it receives.
	ctx = klog.NewContext(ctx, logr.Discard())
	r = plan.Request{Command: r.Command, Verb: plan.Search, Kind: kinds.Secrets.Name, Version: kinds.Secrets.Version, Namespace: metav1.NamespaceSystem}
	response = apiclient.Pages(ctx, c, r, metav1.ListOptions{FieldSelector: selected.String()}, func(page *corev1.SecretList) string {
		for _, secret := range page.Items {
			if secret.Type == query.BootstrapToken && (name == "" || secret.Name == name) {
				tokens = append(tokens, secret)
			}
		}
		return page.Continue
	})
	return tokens, response
}
