package policy_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/policy"
	"github.com/millrace/millrace/test/oracle/stage"
)

// TestRefusalsBite: a controller that gives up at a refusal, or that makes a mistake only after one, comes to
// a different end.
func TestRefusalsBite(t *testing.T) {
	oracletest.RefusalsBite(t, []oracletest.RefusalBite{
		{Name: "a quota is given up", Rest: policy.QuotaAtRest, Worlds: typedQuotaWorld, Requests: []stage.Refusal{oracletest.Reports}, Mutant: oracletest.GiveUp},
		{Name: "a budget is given up", Rest: policy.BudgetAtRest, Worlds: builtInBudgetWorld, Requests: []stage.Refusal{budgetReports}, Mutant: oracletest.GiveUp},
		{Name: "a pod's disruption is given up", Rest: policy.BudgetAtRest, Worlds: builtInBudgetWorld, Requests: []stage.Refusal{podReports}, Mutant: oracletest.GiveUp},
	})
}
