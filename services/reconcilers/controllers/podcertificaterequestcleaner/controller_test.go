package podcertificaterequestcleaner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Content(2, func(v View, _ reconcile.Decision, now time.Time) View {
			gone := *v.Request
			gone.DeletionTimestamp = &metav1.Time{Time: now}
			return View{Request: &gone}
		}),
		reconciletest.Law[View]{Name: "on time", Holds: onTime})
}

// onTime: a request is deleted when it is a quarter of an hour old, and not before.
func onTime(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	age, deleted := now.Sub(v.Request.CreationTimestamp.Time), len(c.Decide(v, now).Commands) > 0
	if deleted != (age >= 900*time.Second && v.Request.DeletionTimestamp == nil) {
		return fmt.Errorf("at the age of %v it is deleted: %v", age, deleted)
	}
	return nil
}

func anyView(t *rapid.T) View {
	r := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "req-1", UID: "u", ResourceVersion: "7"}}
	r.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(rapid.SampledFrom([]int{-60, 0, 1, 300, 899, 900, 901, 7200}).Draw(t, "seconds ago")) * time.Second))
	if rapid.Bool().Draw(t, "issued") {
		r.Status.CertificateChain = "a certificate"
	}
	if rapid.IntRange(0, 7).Draw(t, "deleted") == 7 {
		r.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return View{Request: r}
}

func TestObserve(t *testing.T) {
	request := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "req-1"}}
	key := events.Key{Namespace: "shop", Name: "req-1"}
	world := reconciletest.NewWorld().Put(kinds.PodCertificateRequests.Kind, request)
	if v, ok := observe(world, key); !ok || v.Request != request {
		t.Errorf("the view is %v, found: %v", v.Request, ok)
	}
	if _, ok := observe(world, events.Key{Namespace: "shop", Name: "req-2"}); ok {
		t.Error("observe finds a request that is not there")
	}
	if keys := world.Keys(Controller, kinds.PodCertificateRequests.Kind, request, nil); !slices.Equal(keys, []events.Key{key}) {
		t.Errorf("a new request makes it the turn of %v", keys)
	}
}
