package shadow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// steps are how many changes a kind may be behind in what KCM acts on, and ahead
// how much its clock may be. Which of many pods goes may hang on a single change.
var steps = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 32}

const (
	ahead = 2 * time.Second
	// most bounds how often a controller is asked about one write.
	most = 500
	// forbidden is the status that the API server refuses with.
	forbidden = 403
)

// elsewhere looks for a view on which the controller would have wanted what KCM did:
// with some kinds a little behind, a moment later, and with what became of KCM's last
// attempt forgotten. What is being born is not behind: KCM waits until it has seen
// its own births.
func (m *Matcher) elsewhere(b *book, d Deed, ask Asker, agrees func([]Want) bool) (note string, found bool) {
	var read []kinds.Name
	for _, in := range m.described.Inputs {
		if !in.Every && (d.Verb != events.VerbCreate || in.Kind.Name != d.Ref.Kind) && !slices.Contains(read, in.Kind.Name) {
			read = append(read, in.Kind.Name)
		}
	}
	asked := 0
	for _, back := range lags(read) {
		if asked++; asked > most {
			return "", false
		}
		if wants, ok := ask.Ask(b.key, View{Back: back, Last: b.told}); ok && agrees(wants) {
			return "it is wanted with " + lagText(read, back), true
		}
	}
	if wants, ok := ask.Ask(b.key, View{Ahead: ahead, Last: b.told}); ok && agrees(wants) {
		return "it is wanted a moment later", true
	}
	if b.told == nil {
		return "", false
	}
	if wants, ok := ask.Ask(b.key, View{}); ok && agrees(wants) {
		b.told = nil
		return "it is wanted after an attempt that succeeded", true
	}
	return "", false
}

// lags are the ways in which kinds may be behind, from little to much.
func lags(read []kinds.Name) []map[kinds.Name]int {
	all := []map[kinds.Name]int{{}}
	for _, kind := range read {
		var longer []map[kinds.Name]int
		for _, n := range steps {
			for _, l := range all {
				with := map[kinds.Name]int{kind: n}
				for k, v := range l {
					with[k] = v
				}
				longer = append(longer, with)
			}
		}
		all = longer
	}
	slices.SortStableFunc(all, func(a, b map[kinds.Name]int) int { return total(a) - total(b) })
	return all
}

func total(l map[kinds.Name]int) (sum int) {
	for _, n := range l {
		sum += n
	}
	return sum
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
			last := &events.Outcome{Controller: m.described.Name, Key: b.key, Lane: events.Act, Turn: 1, Results: []events.Result{{
				Status: events.Failed, Ref: ref, Code: forbidden, Reason: string(metav1.StatusReasonForbidden), Message: words,
			}}}
			if wants, ok := ask.Ask(b.key, View{Last: last}); ok && accepts(wants) {
				return last, words
			}
		}
	}
	return nil, ""
}

// attempts are objects that a key has lately wanted to be born or to go.
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
