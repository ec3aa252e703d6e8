package record_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

// world is a bus with a record that a test stores, and what reads it.
type world struct {
	*recordtest.World
	record   *record.Record
	standing *standing.Reader
}

// tell runs a test in a world of its own, twice; see [recordtest.RunWorlds].
func tell(t *testing.T, story func(w *world)) {
	recordtest.RunWorlds(t, func(w *recordtest.World) { story(&world{w, record.New(w.Bus), standing.New(w.Bus)}) })
}

const (
	deployments = recordtest.Deployments
	replicaSets = recordtest.ReplicaSets
)

var (
	web, webSet = recordtest.Web, recordtest.WebSet

	pod      = recordtest.Pod
	create   = recordtest.Create
	replicas = recordtest.Replicas
	trigger  = recordtest.TriggeredBy
)
