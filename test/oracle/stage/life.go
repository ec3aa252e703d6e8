package stage

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// Life is one controller, upstream's and ours, that runs undisturbed after each of some chapters, in which
// users and nodes act. The objects and the Events are then compared.
type Life struct {
	Theirs kcm.Build
	Ours   reconcile.Any
	Kinds  []kinds.Kind // all kinds; ours watches them
	// Chapter is how long both run after each chapter.
	Chapter time.Duration
	// Line is the compared form of an object.
	Line func(metav1.Object) string
	// Fair removes intended differences from the lines of a chapter; nil: nothing.
	Fair func(theirs, ours []string) ([]string, []string)
	// Gates are the feature gates that are not at their defaults.
	Gates gate.Set
	// Attend, when set, is the immediate reaction of another program to a change of an object.
	Attend func(*apiserver.API, events.Ref)
	// Omit, when set, reports whether an Event of upstream's is an intended difference.
	Omit func(*apiserver.API, *corev1.Event) bool
}

// Chapter has the writes of users and nodes at one moment. After a Loose chapter nothing is compared.
type Chapter struct {
	Acts  func(*apiserver.API)
	Loose bool
	// Refused is the API server's refusal during the chapter; the zero value refuses nothing.
	Refused Refusal
}

// Compare runs chapters with both and shows the differences; "" if there are none.
func (l Life) Compare(t *testing.T, chapters []Chapter) (diff string, err error) {
	var theirs [][]string
	failed := kcm.WithGates(l.Gates, func() { synctest.Test(t, func(*testing.T) { theirs, err = l.theirs(chapters) }) })
	if err = errors.Join(failed, err); err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	ours, err := l.ours(chapters)
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	for i := range theirs {
		if l.Fair != nil {
			theirs[i], ours[i] = l.Fair(theirs[i], ours[i])
		}
		if diff := effect.EqualSets(theirs[i], ours[i]); diff != "" && !chapters[i].Loose {
			return fmt.Sprintf("after chapter %d:\n%s", i, diff), nil
		}
	}
	return "", nil
}

func (l Life) lines(s *Stage) (lines []string) {
	for _, obj := range s.Objects() {
		if line := l.Line(obj); line != "" {
			lines = append(lines, line)
		}
	}
	return append(lines, s.Told...)
}

func (l Life) ours(chapters []Chapter) (pages [][]string, err error) {
	a := &Actor{Controller: l.Ours, Now: objects.Now}
	a.Stage = NewStage(func() time.Time { return a.Now }, l.Kinds...)
	a.Stage.Attend = l.Attend
	a.Begin(l.Kinds...)
	for _, chapter := range chapters {
		a.Stage.SetRefusal(chapter.Refused)
		a.Stage.Do(chapter.Acts)
		if err := a.Until(a.Now.Add(l.Chapter)); err != nil {
			return nil, err
		}
		pages = append(pages, l.lines(a.Stage))
	}
	return pages, nil
}

func (l Life) theirs(chapters []Chapter) (pages [][]string, err error) {
	time.Sleep(time.Until(objects.Now))
	s := NewStage(time.Now, l.Kinds...)
	s.Attend, s.Omit = l.Attend, l.Omit
	err = s.RunUpstream(l.Theirs, func() {
		for _, chapter := range chapters {
			s.SetRefusal(chapter.Refused)
			s.Do(chapter.Acts)
			time.Sleep(l.Chapter)
			synctest.Wait()
			s.Do(func(*apiserver.API) { pages = append(pages, l.lines(s)) })
		}
	})
	return pages, err
}
