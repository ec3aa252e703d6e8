package shadow

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// only has the controller want a status on a view with so many changes behind.
func (s *scene) only(sets, pods int) {
	s.earlier = func(v View) []Want {
		if v.Ahead == 0 && v.Back[kinds.ReplicaSets.Name] == sets && v.Back[kinds.Pods.Name] == pods {
			return s.effects(s.status(4, 4))
		}
		return nil
	}
}

// TestEverySmallLagIsTried: which of many pods goes may hang on a single change, so no
// number of changes that KCM may well be behind is passed over.
func TestEverySmallLagIsTried(t *testing.T) {
	for total := range 30 {
		for pods := range total + 1 {
			s := begin()
			s.only(total-pods, pods)
			expect(t, fmt.Sprintf("sets %d and pods %d changes behind", total-pods, pods), s.reports(told, counts(4, 4)), events.Late)
		}
	}
}

// A kind of which little has changed leaves the asks to the other one.
func TestAQuietKindCostsNothing(t *testing.T) {
	for pods := range furthest - 1 {
		s := begin()
		s.known = func(v View) bool { return v.Back[kinds.ReplicaSets.Name] <= 2 }
		s.only(2, pods)
		expect(t, fmt.Sprintf("sets 2 and pods %d changes behind", pods), s.reports(told, counts(4, 4)), events.Late)
	}
}

// However much there is to look at, a moment later is looked at as well.
func TestAsksAreBounded(t *testing.T) {
	s := begin()
	s.earlier = func(v View) []Want {
		if v.Ahead > 0 {
			return s.effects(s.status(4, 4))
		}
		return nil
	}
	expect(t, "a moment later", s.reports(told, counts(4, 4)), events.Late)
	if s.asked > most+1 {
		t.Errorf("asked %d times", s.asked)
	}
}
