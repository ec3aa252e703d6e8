package query

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

// SubToken is the subresource of a patch that makes a Secret the token of a ServiceAccount. The
// API server has no such subresource: the writer reads the Secret live, and adds the token, root
// certificate and namespace that the Secret lacks to the patch. No message contains them, or
// says which are missing.
//
// The body is a merge patch of the annotations that name the ServiceAccount. If the Secret lacks
// nothing, the writer makes no patch.
const SubToken = "token"

// NoToken is the reason with which the writer refuses a [SubToken] patch, with code 422, because
// the Secret is of another type. The type cannot change, so the Secret will never be a token.
const NoToken = "NoToken"

// OtherAccount is the reason with which the writer refuses a [SubToken] patch, with code 403:
// the Secret, as it is now, belongs to another ServiceAccount than the turn says, or the
// ServiceAccount does not exist.
const OtherAccount = "OtherAccount"
