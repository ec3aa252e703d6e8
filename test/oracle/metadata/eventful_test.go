package metadata_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/metadata"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

// TestWorldsAreEventful makes sure that upstream does everything that it can do in the worlds.
func TestWorldsAreEventful(t *testing.T) {
	oracletest.Eventful(t, []oracletest.EventfulCase{
		{Name: "migrations", Pair: metadata.MigrationRunner, Key: oracletest.Key, Worlds: migrationWorld, Want: []string{"The migration is running", "Migration completed"}},
	})
}
