// Package credentials completes writes that only the writer can complete, since it alone has the
// keys or may read the Secrets: tokens of service accounts, signatures by bootstrap tokens, and
// certificates.
//
// A turn says which object is to be completed, and in which version. Each function reads that object
// live and judges it itself: the word of a turn alone signs nothing. The keys are in the packages
// mint and authority. This is the only package of the writer that decodes Secrets. No content of one
// leaves it, and the client library logs none.
package credentials

import (
	"k8s.io/utils/clock"

	"github.com/millrace/millrace/services/writer/apply/authority"
	"github.com/millrace/millrace/services/writer/apply/mint"
)

// Issuer completes tokens, signatures and certificates. It is safe for concurrent use.
type Issuer struct {
	// Mint signs the tokens of service accounts; with nil their commands are refused.
	Mint *mint.Mint
	// Authority signs certificates; with nil their commands are refused.
	Authority *authority.Authority
	// Clock tells when a certificate begins and which tokens have expired.
	Clock clock.PassiveClock
}
