package rules

import (
	"slices"
	"strconv"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/metadata"
)

// Restore brings the API server back to a version, and attributes the changes to no turn. The
// logs may say versions again that they had said before, for other states.
func Restore(g *cluster.Guard, version int64, back func()) {
	g.Record.Restoring, g.Record.Restored = true, true
	back()
	g.Record.Restoring = false
	clear(g.Turns.Generations)
	clear(g.Autoscalers.Rounds) // what was judged and written in what is gone now
	clear(g.Autoscalers.Written)
	clear(g.Autoscalers.Moves)
	clear(g.Autoscalers.Advised)
	for server, asked := range g.Metadata.Missed { // who had no lease then either has none still
		if g.Metadata.Missed[server] = min(asked, version); metadata.Leased(g.World, server) {
			delete(g.Metadata.Missed, server)
		}
	}
	clear(g.Jobs.Begun)
	for _, l := range g.Jobs.Work {
		l.Led = false
	}
	g.Stirred()
	at := strconv.FormatInt(version, 10)
	for _, log := range g.Record.Logs {
		for ref, told := range log.Told {
			log.Told[ref] = slices.DeleteFunc(told, func(t cluster.Telling) bool { return kinds.CompareVersions(t.Version, at) > 0 })
		}
		log.Version, log.Vague = "", true
	}
}
