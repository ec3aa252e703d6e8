package reconcile

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// Certify asks the writer to answer a certificate request as one of Kubernetes' signers
// ([query.SubCertificate]), if the request is unchanged.
func Certify(request metav1.Object, signer string, with ...Option) events.Command {
	body := Body(map[string]any{"spec": map[string]any{"signerName": signer}})
	c := Patch(kinds.CertificateSigningRequests.Kind, request, types.MergePatchType, body, IfUnchanged(request))
	c.Subresource = query.SubCertificate
	return options(c, with)
}
