package workloads_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

// TestWorldsAreEventful makes sure that upstream does everything that it can do in the worlds.
func TestWorldsAreEventful(t *testing.T) {
	oracletest.Eventful(t, []oracletest.EventfulCase{
		{Name: "deployment", Pair: workloads.Deployment, Key: deploymentKey, Worlds: deploymentWorld, Want: []string{
			"create replicasets", "update replicasets", "delete replicasets", "patch replicasets",
			"update deployments", "update deployments/status",
			"ScalingReplicaSet", "DeploymentRollback ", "DeploymentRollbackRevisionNotFound", "DeploymentRollbackTemplateUnchanged",
			"DeploymentPaused", "DeploymentResumed", "FoundNewReplicaSet", "NewReplicaSetCreated",
			"ReplicaSetUpdated", "NewReplicaSetAvailable", "ProgressDeadlineExceeded",
		}},
		{Name: "replica set", Pair: workloads.ReplicaSet, Key: replicaSetKey, Worlds: replicaSetWorld, Want: []string{
			"create pods", "delete pods", "patch pods", "update replicasets/status", "SuccessfulCreate", "SuccessfulDelete",
		}},
		{Name: "groups of pods", Pair: workloads.GroupProtection, Key: oracletest.Key, Worlds: groupWorld, Want: []string{"update podgroups"}},
	})
}
