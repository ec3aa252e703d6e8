package events

import "github.com/millrace/millrace/pkg/events/kinds"

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

// FillsToken reports whether the command is a [SubToken] patch of a Secret.
func (c Command) FillsToken() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.Secrets.Name && c.Subresource == SubToken
}
