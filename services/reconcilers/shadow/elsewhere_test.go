package shadow

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
)

// only makes the controller want a status on the view that is so many changes behind, and on no other.
func (s *scene) only(sets, pods int) {
	s.earlier = func(v View) []Want {
		if v.Ahead == 0 && v.Back[kinds.ReplicaSets.Name] == sets && v.Back[kinds.Pods.Name] == pods {
			return s.effects(s.status(4, 4))
		}
		return nil
	}
}

// TestEverySmallLagIsTried: a single change can decide which of many pods is deleted, so the
// matcher skips no number of changes that KCM may well be behind.
func TestEverySmallLagIsTried(t *testing.T) {
	for total := range 30 {
		for pods := range total + 1 {
			s := begin()
			s.only(total-pods, pods)
			expect(t, fmt.Sprintf("sets %d and pods %d changes behind", total-pods, pods), s.reports(told, counts(4, 4)), report.Late)
		}
	}
}

// A kind with few changes leaves the asks to the other kind.
func TestAQuietKindCostsNothing(t *testing.T) {
	for pods := range furthest - 1 {
		s := begin()
		s.known = func(v View) bool { return v.Back[kinds.ReplicaSets.Name] <= 2 }
		s.only(2, pods)
		expect(t, fmt.Sprintf("sets 2 and pods %d changes behind", pods), s.reports(told, counts(4, 4)), report.Late)
	}
}

// The number of asks is bounded, and the matcher tries a later moment however many views there are.
func TestAsksAreBounded(t *testing.T) {
	s := begin()
	s.earlier = func(v View) []Want {
		if v.Ahead > 0 {
			return s.effects(s.status(4, 4))
		}
		return nil
	}
	expect(t, "a moment later", s.reports(told, counts(4, 4)), report.Late)
	if s.asked > most+1 {
		t.Errorf("asked %d times", s.asked)
	}
}
