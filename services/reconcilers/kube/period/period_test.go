package period

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// Every object is due once in each period, whenever it is looked at.
func TestNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := types.UID(rapid.String().Draw(t, "uid"))
		every := time.Duration(rapid.Int64Range(1, int64(48*time.Hour)).Draw(t, "every"))
		now := time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "now"), rapid.Int64Range(0, 999999999).Draw(t, "and"))
		at := Next(uid, every, now)
		if !at.After(now) || at.Sub(now) > every {
			t.Fatalf("every %v: at %v, which is %v after %v", every, at, at.Sub(now), now)
		}
		if again := Next(uid, every, at); !again.Equal(at.Add(every)) {
			t.Fatalf("every %v: at %v, and then at %v", every, at, again)
		}
		between := now.Add(time.Duration(rapid.Int64Range(0, int64(at.Sub(now))-1).Draw(t, "later")))
		if same := Next(uid, every, between); !same.Equal(at) {
			t.Fatalf("at %v it is %v, at %v %v", now, at, between, same)
		}
	})
	moments := map[time.Time]bool{}
	for _, uid := range []types.UID{"a", "b", "c", "d"} {
		moments[Next(uid, time.Hour, time.Unix(0, 0))] = true
	}
	if len(moments) != 4 {
		t.Errorf("four objects have their turns at %v", moments)
	}
	if at := Next("a", 0, time.Unix(0, 0)); !at.IsZero() {
		t.Errorf("without a period the next time is %v, want none", at)
	}
}
