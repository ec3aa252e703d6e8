package storage_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/storage"
)

// TestWorldsAreEventful makes sure that upstream does everything that it can do in the worlds.
func TestWorldsAreEventful(t *testing.T) {
	oracletest.Eventful(t, []oracletest.EventfulCase{
		{Name: "pods' own volumes", Pair: storage.EphemeralVolume, Key: oracletest.Key, Worlds: ephemeralWorld, Want: []string{"create persistentvolumeclaims", "FailedBinding"}},
		{Name: "classes of volumes", Pair: storage.ClassProtection, Key: oracletest.Key, Worlds: classWorld, Want: []string{"update volumeattributesclasses"}},
		{Name: "expansions of volumes", Pair: storage.VolumeExpander, Key: oracletest.Key, Worlds: expansionWorld, Want: []string{"patch persistentvolumeclaims/status", "ExternalExpanding"}},
	})
}
