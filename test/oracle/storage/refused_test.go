package storage_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/oracle/storage"
)

// TestRefusedLivesBite: a controller that gives up at a refusal has a different life.
func TestRefusedLivesBite(t *testing.T) {
	for _, c := range []struct {
		name     string
		life     stage.Life
		chapters func(*rapid.T) []stage.Chapter
	}{
		{"a volume is not bound", storage.RefusedVolumeBinder, func(r *rapid.T) []stage.Chapter { return refusedStore(r).Chapters }},
		{"a volume is not attached", storage.AttachDetach, func(r *rapid.T) []stage.Chapter { return anyHall(r, attachingRequests).Chapters }},
	} {
		t.Run(c.name, func(t *testing.T) {
			lives := rapid.Custom(c.chapters)
			c.life.Ours = oracletest.GiveUp(c.life.Ours)
			for seed := range oracletest.Enough {
				diff, err := c.life.Compare(t, lives.Example(seed))
				if err != nil {
					t.Fatal(err)
				}
				if diff != "" {
					return
				}
			}
			t.Errorf("nothing was noticed in %d lives", oracletest.Enough)
		})
	}
}

// TestRefusedWritesEndAsUpstreams: the API server refuses some writes of each controller, temporarily or for
// good. When both are at rest, the objects and the Events must be the same.
func TestRefusedWritesEndAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 10)
	for _, c := range []oracletest.Refused{
		{Name: "pvprotection", Pair: storage.VolumeProtection, Worlds: volumeWorld, Kinds: []kinds.Kind{kinds.PersistentVolumes.Kind}},
		{Name: "pvcprotection", Pair: storage.ClaimProtection, Worlds: claimWorld, Kinds: []kinds.Kind{kinds.PersistentVolumeClaims.Kind, kinds.Pods.Kind}},
	} {
		c.EndsAlike(t)
	}
}
