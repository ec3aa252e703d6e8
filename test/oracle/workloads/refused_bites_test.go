package workloads_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/oracle/workloads"
)

// TestRefusalsBite: a controller that gives up at a refusal, or that makes a mistake only after one, comes to
// a different end.
func TestRefusalsBite(t *testing.T) {
	oracletest.RefusalsBite(t, []oracletest.RefusalBite{
		{Name: "a Job gives up", Rest: workloads.JobAtRest, Worlds: lastingJobWorld, Requests: []stage.Refusal{oracletest.Creates, oracletest.Patches, oracletest.Reports, oracletest.Deletes}, Mutant: oracletest.GiveUp},
		{Name: "a Job does not tell what was refused", Rest: workloads.JobAtRest, Worlds: lastingJobWorld, Requests: []stage.Refusal{oracletest.Creates, oracletest.Deletes}, Mutant: oracletest.TellNoFailure},
	})
}
