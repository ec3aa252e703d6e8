package translate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestObjectKeepsWhoChangedItAndDropsTheFields(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "u1", ResourceVersion: "7",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update"}},
	}}
	d, err := translate.Object(kinds.Pods.Kind, events.Is, pod, translate.Stamp{At: now, Epoch: 2})
	if err != nil {
		t.Fatal(err)
	}
	if d.By.Name != "kubectl" || d.Epoch != 2 || d.Form != kinds.Full {
		t.Errorf("delta is %+v", d)
	}
	back, err := kinds.Decode(kinds.Pods.Kind, d.ContentType, d.Body)
	if err != nil {
		t.Fatal(err)
	}
	if back.GetName() != "web" || len(back.GetManagedFields()) != 0 {
		t.Errorf("body decodes to %+v", back)
	}
}

func TestSecretsNeverCarryTheirContent(t *testing.T) {
	const canary = "hunter2-canary"
	kind := kinds.Kind{Name: "secrets", Version: "v1", Kind: "Secret", Namespaced: true, Form: kinds.Full}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s", UID: "u", ResourceVersion: "1", Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"p":"` + canary + `"}}`, "kept": "yes",
		}},
		Data: map[string][]byte{"p": []byte(canary)},
	}
	d, err := translate.Object(kind, events.Is, secret, translate.Stamp{At: now})
	if err != nil {
		t.Fatal(err)
	}
	if d.Form != kinds.Metadata || strings.Contains(string(d.Body), canary) || !strings.Contains(string(d.Body), "kept") {
		t.Errorf("form %s, body %q", d.Form, d.Body)
	}
}

func TestResumeOnlyWhereAPositionIsComplete(t *testing.T) {
	for _, c := range []struct {
		name string
		last events.Delta
		want bool
	}{
		{"a change", events.Delta{Op: events.Is, ResourceVersion: "5"}, true},
		{"an end", events.Delta{Op: events.Gone, ResourceVersion: "5"}, true},
		{"a mark", events.Delta{Op: events.Mark, ResourceVersion: "5"}, true},
		{"a finding of a relist", events.Delta{Op: events.Is, ResourceVersion: "5", Sync: true}, false},
		{"a gap", events.Delta{Op: events.Gap, ResourceVersion: "5"}, false},
	} {
		if _, got := translate.Resume(c.last); got != c.want {
			t.Errorf("%s: resume is %t, want %t", c.name, got, c.want)
		}
	}
}

// thing is an object of a toy cluster.
type thing struct {
	uid     types.UID
	version int
}

// TestRelistsLoseNothing: whatever a watcher missed, the deltas of its relist
// fold to what is there; an object that was replaced ends before it begins;
// and a relist of what is known already says nothing.
func TestRelistsLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world, state := map[string]thing{}, translate.NewState()
		log, clock, highest, births := []events.Delta{}, 0, 0, 0
		say := func(d events.Delta) {
			log = append(log, d)
			state.Fold(d, uint64(len(log)))
		}
		relist := func() *translate.Relist {
			r := state.Compare(fmt.Sprint(clock), false)
			for name, o := range world {
				ref := events.Ref{Kind: "pods", Name: name}
				f := r.See(ref, o.uid, fmt.Sprint(o.version))
				if f.Replaced != 0 {
					say(translate.Tombstone(log[f.Replaced-1], translate.Stamp{At: now, Epoch: r.Epoch()}))
				}
				if f.Changed {
					say(events.Delta{Op: events.Is, Ref: ref, UID: o.uid, ResourceVersion: fmt.Sprint(o.version), Epoch: r.Epoch(), Sync: true})
				}
			}
			for _, sequence := range r.Missing() {
				say(translate.Tombstone(log[sequence-1], translate.Stamp{At: now, Epoch: r.Epoch()}))
			}
			say(translate.Mark("pods", fmt.Sprint(clock), now, translate.Stamp{At: now, Epoch: r.Epoch()}))
			return r
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			o, there := world[name]
			clock++
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				if !there {
					births++
					o.uid = types.UID(fmt.Sprint("u", births))
				}
				o.version = clock
				world[name] = o
			case 2:
				delete(world, name)
			case 3: // the backup of an hour ago
				clock = max(1, clock/2)
				for n, o := range world {
					if o.version > clock {
						delete(world, n)
					}
				}
			default:
				before := state.Compare("", false).Epoch()
				back := clock < highest
				r := relist()
				if got := r.Epoch() > before; got != back {
					t.Fatalf("new epoch is %t at %d after %d", got, clock, highest)
				}
				highest = clock
			}
		}
		relist()
		said := len(log)
		relist()
		if len(log) != said+1 {
			t.Fatalf("a relist of what is known said %d deltas beside its mark", len(log)-said-1)
		}
		check(t, log, world)
	})
}

func check(t *rapid.T, log []events.Delta, world map[string]thing) {
	live, told := map[string]events.Delta{}, map[string]bool{}
	for _, d := range log {
		before, there := live[d.Ref.Name]
		switch d.Op {
		case events.Is:
			if there && before.UID != d.UID {
				t.Fatalf("%v began before the other one ended", d.Ref)
			}
			id := fmt.Sprint(d.ID(), d.Epoch)
			if told[id] {
				t.Fatalf("%s was said twice", id)
			}
			told[id], live[d.Ref.Name] = true, d
		case events.Gone:
			if !there || before.UID != d.UID {
				t.Fatalf("%v ended without being there", d.Ref)
			}
			delete(live, d.Ref.Name)
		case events.Mark, events.Gap:
		}
	}
	if len(live) != len(world) {
		t.Fatalf("folded %v, want %v", live, world)
	}
	for name, o := range world {
		if d := live[name]; d.UID != o.uid || d.ResourceVersion != fmt.Sprint(o.version) {
			t.Fatalf("%s folds to %s at %s, want %v", name, d.UID, d.ResourceVersion, o)
		}
	}
}
