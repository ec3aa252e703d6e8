package events

import "github.com/millrace/millrace/pkg/events/kinds"

// SubCertificate is the subresource of a patch by which a CertificateSigningRequest gets its
// certificate. The API server has none of that name: the writer looks at the request live,
// judges it by the rules of its signer (package csr), signs with the signer's key, and writes
// the certificate to the status. Where the request breaks the rules it writes there that it
// has failed. No key and no certificate is in the turn or in what is said of it.
//
// The patch is a merge patch of the name of the signer that the request is for.
const SubCertificate = "certificate"

// NotToBeSigned is the reason for which a patch by [SubCertificate] is refused, with code 403:
// the request, as it is, is for another signer, is not approved, or was answered before.
const NotToBeSigned = "NotToBeSigned"

// NoKey is the reason for which a writer refuses, with code 403, what it would need a key for
// that it does not have, or that does not sign at present.
const NoKey = "NoKey"

// Certifies tells whether a command is such a patch.
func (c Command) Certifies() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.CertificateSigningRequests.Name && c.Subresource == SubCertificate
}
