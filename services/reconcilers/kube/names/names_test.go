package names_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func owner(name, uid, version string) metav1.Object {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

func free(string) bool { return false }

// The names are part of the record: replay must find them again.
func TestDerivedNamesAreFixedForEver(t *testing.T) {
	got := names.Derived(owner("web", "4f1c", "812"), 0, 3, free)
	want := []string{"web-pqpfh", "web-qmh9m", "web-4q7p4"}
	if !slices.Equal(got, want) {
		t.Errorf("Derived = %q, want %q", got, want)
	}
}

func TestDerived(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9]{0,252}`).Draw(t, "name")
		set := owner(name, rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "uid"), "7")
		attempt := rapid.Uint64().Draw(t, "attempt")
		count := rapid.IntRange(0, 500).Draw(t, "count")
		all := names.Derived(set, attempt, 500, free)
		some := names.Derived(set, attempt, count, free)

		if !slices.Equal(some, all[:count]) {
			t.Fatalf("the first %d names depend on how many were asked for", count)
		}
		unique := slices.Compact(slices.Sorted(slices.Values(all)))
		if len(unique) != len(all) {
			t.Fatalf("%d of %d names are doubles", len(all)-len(unique), len(all))
		}
		for _, n := range all {
			if !names.Derives(name, n) {
				t.Fatalf("%q does not look derived from %q", n, name)
			}
			if wrong := validation.IsDNS1123Subdomain(n); len(wrong) > 0 || len(n) > 63 {
				t.Fatalf("%q is no name: %v", n, wrong)
			}
		}
		if other := names.Derived(set, attempt+1, 1, free); other[0] == all[0] {
			t.Fatalf("attempts %d and %d give the same name", attempt, attempt+1)
		}
		taken := func(n string) bool { return slices.Contains(all[:3], n) }
		if again := names.Derived(set, attempt, 1, taken); again[0] != all[3] {
			t.Fatalf("with the first three names taken the next is %q, want %q", again[0], all[3])
		}
	})
}

func TestNamesDependOnWhatTheCreateWasDecidedOn(t *testing.T) {
	first := names.Derived(owner("web", "4f1c", "812"), 0, 1, free)[0]
	for what, other := range map[string]metav1.Object{
		"another uid":     owner("web", "4f1d", "812"),
		"another version": owner("web", "4f1c", "813"),
	} {
		if got := names.Derived(other, 0, 1, free)[0]; got == first {
			t.Errorf("%s gives the same name %q", what, got)
		}
	}
}

// Upstream: a dash is added unless the name would be too long, and the API
// server cuts what is generated from.
func TestPrefix(t *testing.T) {
	long := strings.Repeat("a", 253)
	for given, want := range map[string]string{"web": "web-", long: long, long[:252]: long[:252] + "-"} {
		if got := names.Prefix(given); got != want {
			t.Errorf("Prefix(%d characters) = %q, want %q", len(given), got, want)
		}
	}
	if got := names.Derived(owner(long, "u", "1"), 0, 1, free)[0]; len(got) != 63 || got[:58] != long[:58] {
		t.Errorf("the name derived from a long one is %q", got)
	}
}

func TestDerives(t *testing.T) {
	for name, want := range map[string]bool{
		"web-bcdfg": true, "web-bcdf": false, "web-bcdfgh": false, "web-bcdfa": false, "app-bcdfg": false, "web": false,
	} {
		if got := names.Derives("web", name); got != want {
			t.Errorf("Derives(web, %q) = %v, want %v", name, got, want)
		}
	}
}

func TestOnlyAFailureIsAnotherAttempt(t *testing.T) {
	key := events.Key{Namespace: "default", Name: "web"}
	world := reconciletest.NewWorld()
	web := &metav1.ObjectMeta{UID: "u"}
	if got := names.Attempt(world, key, web); got != 0 {
		t.Errorf("before any turn the attempt is %d, want 0", got)
	}
	for status, want := range map[events.Status]uint64{events.Applied: 0, events.Refused: 9} {
		world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: "u", Turn: 9, Results: []events.Result{{Status: status}}})
		if got := names.Attempt(world, key, web); got != want {
			t.Errorf("after turn 9 was %s the attempt is %d, want %d", status, got, want)
		}
		if got := names.Attempt(world, key, &metav1.ObjectMeta{UID: "another"}); got != 0 {
			t.Errorf("after turn 9 of another owner the attempt is %d, want 0", got)
		}
	}
}
