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
	// ahead is how much KCM's clock may be.
	ahead = 2 * time.Second
	// furthest is how many changes kinds may be behind in what KCM acts on, together.
	// Which of many pods goes may hang on a single change, so none is passed over.
	furthest = 32
	// most bounds how often a controller is asked about one write on views behind.
	most = 500
	// forbidden is the status that the API server refuses with.
	forbidden = 403
)

// elsewhere looks for a view on which the controller would have wanted what KCM did:
// with some kinds a little behind, a moment later, and with what became of KCM's last
// attempt forgotten. What is being created is not behind: KCM waits until it has seen
// its own creates.
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

// lags tries the ways in which kinds may be behind, from little to much. A kind that
// is not known to have been so far behind alone is not so far behind with others.
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

// shares are the ways to share a number out, none to get more than its bound.
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

// reports looks whether KCM's status is the one that the controller would report had
// the API server refused it for the reason that is in there. From then on the
// controller knows of it, as it would from an outcome.
func (m *Matcher) reports(b *book, status metav1.Object, ask Asker, agrees func([]Want) bool) bool {
	last, _ := m.refusal(b, status, ask, agrees)
	if last == nil {
		return false
	}
	b.told = last
	return true
}

// refusal is a failure of the key's last turn for a reason that the conditions of an
// object give, with which a test accepts what is wanted; nil when there is none.
func (m *Matcher) refusal(b *book, status metav1.Object, ask Asker, accepts func([]Want) bool) (last *events.Outcome, words string) {
	if status == nil {
		return nil, ""
	}
	for _, words := range reasons(status) {
		for _, ref := range b.attempts() {
			last := &events.Outcome{Controller: m.described.Name, Key: b.key, UID: status.GetUID(), Lane: events.Act, Turn: 1, Results: []events.Result{{
				Status: events.Failed, Ref: ref, Code: forbidden, Reason: string(metav1.StatusReasonForbidden), Message: words,
			}}}
			if wants, ok := ask.Ask(b.key, View{Last: last}); ok && accepts(wants) {
				return last, words
			}
		}
	}
	return nil, ""
}

// attempts are objects that a key has lately wanted to be created or to go.
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

// reasons are the messages in an object's conditions, and what follows a colon in
// them, which is where a reason is quoted.
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
