package shadow

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

const (
	// ahead is how far KCM's clock may be ahead.
	ahead = 2 * time.Second
	// furthest is how many changes the kinds in KCM's view may be behind, in total.
	// Which of many pods it deletes may depend on a single change, so the matcher
	// skips none.
	furthest = 32
	// most bounds how often the matcher asks a controller on older views about one
	// write.
	most = 500
	// forbidden is the status code of a refusal by the API server.
	forbidden = 403
)

// elsewhere looks for a view on which the controller would have wanted what KCM did:
// with some kinds a little behind, a moment later, or without the outcome of KCM's
// last attempt. The kind of a created object is not behind, because KCM waits until
// it has seen its own creates.
func (m *Matcher) elsewhere(b *book, d Operation, ask Asker, agrees func(View, []Want) bool) (note string, found bool) {
	var read []kinds.Name
	for _, in := range m.described.Inputs {
		if !in.Every && (d.Verb != events.VerbCreate || in.Kind.Name != d.Ref.Kind) && !slices.Contains(read, in.Kind.Name) {
			read = append(read, in.Kind.Name)
		}
	}
	lags(read, func(back map[kinds.Name]int) (known, enough bool) {
		view := View{Back: back, Last: b.told}
		wants, ok := ask.Ask(b.key, view)
		if found = ok && agrees(view, wants); found {
			note = "it is wanted with " + lagText(read, back)
		}
		return ok, found
	})
	if found {
		return note, true
	}
	later := View{Ahead: ahead, Last: b.told}
	if wants, ok := ask.Ask(b.key, later); ok && agrees(later, wants) {
		return "it is wanted a moment later", true
	}
	if b.told == nil {
		return "", false
	}
	if wants, ok := ask.Ask(b.key, View{}); ok && agrees(View{}, wants) {
		b.told = nil
		return "it is wanted after an attempt that succeeded", true
	}
	return "", false
}

// lags tries the ways in which kinds may be behind, from little to much. It limits
// each kind to the lag that is remembered for that kind alone.
func lags(read []kinds.Name, try func(back map[kinds.Name]int) (known, enough bool)) {
	tries, known := 0, map[kinds.Name]int{}
	for _, kind := range read {
		known[kind] = furthest
	}
	for total := 0; total <= furthest; total++ {
		before := tries
		for back := range shares(read, total, known) {
			if tries == most {
				return
			}
			tries++
			ok, enough := try(back)
			if enough {
				return
			}
			for kind, n := range back {
				if !ok && n == total {
					known[kind] = n - 1
				}
			}
		}
		if tries == before {
			return
		}
	}
}

// shares yields the ways to distribute total, none above its bound.
func shares(among []kinds.Name, total int, bound map[kinds.Name]int) iter.Seq[map[kinds.Name]int] {
	return func(yield func(map[kinds.Name]int) bool) {
		if len(among) == 0 {
			if total == 0 {
				yield(map[kinds.Name]int{})
			}
			return
		}
		last := among[len(among)-1]
		for n := 0; n <= min(total, bound[last]); n++ {
			for rest := range shares(among[:len(among)-1], total-n, bound) {
				if rest[last] = n; !yield(rest) {
					return
				}
			}
		}
	}
}

func lagText(read []kinds.Name, back map[kinds.Name]int) string {
	var parts []string
	for _, kind := range read {
		if n := back[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d changes behind", kind, n))
		}
	}
	if len(parts) == 0 {
		return "nothing behind"
	}
	return strings.Join(parts, " and ")
}

// reports reports whether KCM's status is the one that the controller would report if
// the API server had refused it for the reason in that status, now or with that kind
// a little behind: KCM may not have seen yet what it reported before. From then
// on the controller knows of the refusal, as it would from an outcome.
func (m *Matcher) reports(b *book, d Operation, ask Asker, agrees func([]Want) bool) (found bool) {
	lags([]kinds.Name{d.Ref.Kind}, func(back map[kinds.Name]int) (known, enough bool) {
		last, known := m.refusal(b, d.Now.Object, back, ask, agrees)
		if found = last != nil; found {
			b.told = last
		}
		return known, found
	})
	return found
}

// refusal is a failure of the key's last turn, for a reason in the conditions of an
// object, with which accepts is true for the controller's wants; nil if there is
// none. known reports whether there is the view on which they are wanted.
func (m *Matcher) refusal(b *book, status metav1.Object, back map[kinds.Name]int, ask Asker, accepts func([]Want) bool) (last *events.Outcome, known bool) {
	if status == nil {
		return nil, false
	}
	for _, words := range reasons(status) {
		for _, ref := range b.attempts() {
			last := &events.Outcome{Controller: m.described.Name, Key: b.key, UID: status.GetUID(), Lane: events.LaneWrite, Turn: 1, Results: []events.Result{{
				Status: events.Failed, Ref: ref, Code: forbidden, Reason: string(metav1.StatusReasonForbidden), Message: words,
			}}}
			wants, ok := ask.Ask(b.key, View{Back: back, Last: last})
			if known = known || ok; ok && accepts(wants) {
				return last, true
			}
		}
	}
	return nil, known
}

// attempts are objects that the key has lately wanted to create or delete.
func (b *book) attempts() (refs []events.Ref) {
	for _, p := range append(slices.Clone(b.past), page{wants: b.standing}) {
		for _, o := range p.wants {
			if o.Verb != events.VerbUpdate && !slices.Contains(refs, o.Ref) {
				refs = append(refs, o.Ref)
			}
		}
	}
	slices.Reverse(refs)
	return refs[:min(len(refs), 3)]
}

// reasons are the messages of an object's conditions, and the text after each colon
// in them, where a reason is quoted.
func reasons(object metav1.Object) (words []string) {
	status, _ := treeOf(object)["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		for text, _ := condition["message"].(string); text != ""; {
			words = append(words, text)
			_, text, _ = strings.Cut(text, ": ")
		}
	}
	return words
}
