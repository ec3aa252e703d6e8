package credentials_test

import (
	"github.com/millrace/millrace/services/writer/apply/applytest"
)

// Short names of the test kit.
var (
	actor         = applytest.Actor
	open          = applytest.Open
	carry         = applytest.Carry
	minting       = applytest.Minting
	certifying    = applytest.Certifying
	atNoon        = applytest.AtNoon
	encoded       = applytest.Encoded
	keep          = applytest.Keep
	keepInfo      = applytest.KeepInfo
	keepBootstrap = applytest.KeepBootstrap
	signer        = applytest.KeepSigner
)

const (
	accountPath     = applytest.AccountPath
	secretPath      = applytest.SecretPath
	nameKey, uidKey = applytest.NameKey, applytest.UIDKey
	tokenType       = applytest.TokenType
	bootstrapPath   = applytest.BootstrapPath
	bootstrapType   = applytest.BootstrapType
	infoPath        = applytest.InfoPath
	canary          = applytest.Canary
)
