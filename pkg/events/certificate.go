package events

import "github.com/millrace/millrace/pkg/events/kinds"

// SubCertificate is the subresource of a patch that issues the certificate of a
// CertificateSigningRequest. The API server has no such subresource: the writer reads the
// request live, checks it against the rules of its signer (package csr), signs it with the
// signer's key, and writes the certificate to the status. If the request breaks the rules, the
// writer records the failure there. Neither the turn nor its outcome contains a key or a
// certificate.
//
// The body is a merge patch with the name of the signer that the request is for.
const SubCertificate = "certificate"

// NotToBeSigned is the reason with which the writer refuses a [SubCertificate] patch, with code
// 403: the request, as it is now, is for another signer, is not approved, or has been answered
// already.
const NotToBeSigned = "NotToBeSigned"

// NoKey is the reason with which a writer refuses a command, with code 403, when it does not
// have the key that the command needs, or the key does not sign at present.
const NoKey = "NoKey"

// Certifies reports whether the command is a [SubCertificate] patch of a
// CertificateSigningRequest.
func (c Command) Certifies() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.CertificateSigningRequests.Name && c.Subresource == SubCertificate
}
