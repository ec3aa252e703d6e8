package apply_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
	"github.com/millrace/millrace/services/writer/plan"
)

// Of a turn that is lost no more requests are made than were in flight, however many
// of it might have been made at once.
func TestALostTurnMakesNoMoreRequests(t *testing.T) {
	const (
		many   = 30
		flying = 3
		kept   = 10
	)
	s := fakeserver.New(t)
	var commands []events.Command
	for i := range many {
		name := fmt.Sprint("web-", i)
		s.Put(podPath+name, name, map[string]any{})
		commands = append(commands, death(name, types.UID(name)))
	}
	var answered atomic.Int64
	s.Hold(func(fakeserver.Request) { answered.Add(1) })
	d := open(t, s, func(c *apply.Config) { c.MaxInFlight = flying })
	p := plan.New(events.Turn{Controller: actor.Controller, Lane: events.Act, Commands: commands}, plan.Options{})
	holds := func() bool { return answered.Load() < kept }
	_, done := d.Carry(t.Context(), actor, p, holds, func(command, try int) string { return strconv.Itoa(command) })
	if made := len(s.Requests()); done || made < kept || made > kept+flying {
		t.Errorf("%d requests were made, done: %t; the turn was lost after %d, %d at a time", made, done, kept, flying)
	}
}
