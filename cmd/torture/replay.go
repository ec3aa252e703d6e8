package main

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

// decidedAgain is the rule that needs the controllers in addition to the books.
var decidedAgain = check.Rule{Name: "I13", Text: "every turn is decided again as it was, byte for byte"}

// replay repeats every decision that was made under the faults: each turn must come out as recorded, and none
// may rest on a message that the record does not have.
func (s *session) replay(ctx context.Context, archive bus.Archive) (broken []check.Violation, err error) {
	s.report.Replay, err = replay.Run(ctx, archive, replay.Options{Make: controllers.Again}, func(c replay.Case) error {
		if c.Verdict == replay.Same {
			return nil
		}
		v := check.Violation{Rule: decidedAgain.Name, Text: fmt.Sprintf("turn %d of %s for %v is %s when it is decided again", c.Sequence, c.Controller, c.Turn.Key, c.Verdict)}
		for _, text := range []string{string(c.Why), c.Detail, c.Broken} {
			if text != "" {
				v.Evidence = append(v.Evidence, text)
			}
		}
		if c.Now != nil {
			v.Evidence = append(v.Evidence, "then: "+c.Turn.Because, "now: "+c.Now.Because)
		}
		broken = append(broken, v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("replay what was recorded: %w", err)
	}
	return broken, nil
}
