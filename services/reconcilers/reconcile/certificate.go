package reconcile

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Certify has the writer answer a request for a certificate as one of Kubernetes' signers, as
// long as the request is as it is seen ([events.SubCertificate]).
func Certify(request metav1.Object, signer string, with ...Option) events.Command {
	body := Body(map[string]any{"spec": map[string]any{"signerName": signer}})
	c := Patch(kinds.CertificateSigningRequests.Kind, request, types.MergePatchType, body, IfUnchanged(request))
	c.Subresource = events.SubCertificate
	return options(c, with)
}
