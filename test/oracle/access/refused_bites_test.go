package access_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
)

// TestRefusalsBite: a controller that gives up at a refusal, or that makes a mistake only after one, comes to
// a different end.
func TestRefusalsBite(t *testing.T) {
	oracletest.RefusalsBite(t, []oracletest.RefusalBite{
		{Name: "a certificate is given up", Rest: access.RequestSignerAtRest, Worlds: approvedRequest, Requests: []stage.Refusal{oracletest.Reports}, Mutant: oracletest.GiveUp},
		{Name: "a token is given up", Rest: access.TokensAtRest, Worlds: bootstrapWorld, Requests: []stage.Refusal{oracletest.Deletes}, Mutant: oracletest.GiveUp},
	})
}
