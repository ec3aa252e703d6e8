package apply_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
	"github.com/millrace/millrace/services/writer/plan"
)

// orphaned asks a door to delete a pod whose owner is the ReplicaSet ns/web with a
// uid, if that is absent.
func orphaned(t *testing.T, s *fakeserver.Server, d *apply.Door, pod string, owner types.UID) events.Result {
	t.Helper()
	s.Put(podPath+pod, pod, map[string]any{})
	c := death(pod, types.UID(pod))
	c.If.Absent = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: owner}}
	return carry(t, d, plan.Options{}, c)[0]
}

// What was found out about one uid says nothing about the next bearer of the name,
// in whatever order they are asked for.
func TestAnOwnerThatLivesIsFoundEachTime(t *testing.T) {
	s := fakeserver.New(t)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
	d := open(t, s)
	// Without a uid whatever there is of the name is meant.
	for i, owner := range []types.UID{"rs", "rs", "before", "rs", "before", "rs", "", ""} {
		r := orphaned(t, s, d, fmt.Sprint("p", i), owner)
		if alive := r.Status == events.Refused && r.Reason == "OwnerAlive"; alive != (owner != "before") {
			t.Errorf("number %d, of %s: %+v", i, owner, r)
		}
	}
}

// An API server that cannot answer has not said that nobody is there.
func TestAnErrorProvesNoAbsence(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusGatewayTimeout} {
		s := fakeserver.New(t)
		s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
		var looks atomic.Int64
		s.Break(func(r fakeserver.Request) fakeserver.Fault {
			if strings.HasSuffix(r.Path, "/web") && looks.Add(1) == 1 {
				return fakeserver.Fault{Code: code}
			}
			return fakeserver.Fault{}
		})
		if r := orphaned(t, s, open(t, s), "p", "rs"); r.Status != events.Refused || r.Reason != "OwnerAlive" {
			t.Errorf("after a %d: %+v", code, r)
		}
		if looks.Load() != 2 {
			t.Errorf("after a %d: %d looks, want another one", code, looks.Load())
		}
	}
}

// The kind of the owner was served when discovery was last asked, and is not now, as after
// the restore of a storage without it. That proves nothing about the owner.
func TestAKindThatIsNotServedProvesNoAbsence(t *testing.T) {
	s := fakeserver.New(t)
	d := open(t, s)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
	if r := orphaned(t, s, d, "first", "rs"); r.Reason != "OwnerAlive" {
		t.Fatalf("at first: %+v", r)
	}
	s.Break(func(r fakeserver.Request) fakeserver.Fault {
		return fakeserver.Fault{Unserved: strings.HasPrefix(r.Path, "/apis/apps/v1/namespaces")}
	})
	for _, pod := range []string{"second", "third"} {
		if r := orphaned(t, s, d, pod, "rs"); r.Status != events.Refused || r.Reason != plan.ReasonNoMatch {
			t.Errorf("of a kind that is not served: %+v", r)
		}
	}
}
