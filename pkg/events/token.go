package events

import "github.com/millrace/millrace/pkg/events/kinds"

// SubToken is the subresource of a patch by which a Secret becomes the token of a
// ServiceAccount. The API server has none of that name: the writer looks at the Secret
// live, and completes the patch with what the Secret lacks of token, root certificate
// and namespace. What it lacks is in no message, and neither is what it gets.
//
// The patch is a merge patch of the annotations that say whose token it is. Where nothing
// is lacking, it is not made.
const SubToken = "token"

// NoToken is the reason for which a patch by [SubToken] is refused, with code 422, when
// the Secret is of another type: that cannot change, so it will never be a token.
const NoToken = "NoToken"

// OtherAccount is the reason for which a patch by [SubToken] is refused, with code 403: the Secret, as
// it is, is not of the account that the turn says, or that is not there.
const OtherAccount = "OtherAccount"

// FillsToken tells whether a command is such a patch.
func (c Command) FillsToken() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.Secrets.Name && c.Subresource == SubToken
}
