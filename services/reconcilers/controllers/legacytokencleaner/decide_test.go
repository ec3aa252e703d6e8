package legacytokencleaner

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	now        = reconciletest.Now
	controller = New(Config{})
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now, reconciletest.Content(2, carriedOut))
}

func anyView(t *rapid.T) View {
	date := rapid.SampledFrom([]string{"", "nonsense", "2028-12-30", "2028-12-31", "2029-01-01", "2029-06-01", "2029-12-31"})
	period := rapid.SampledFrom([]time.Duration{DefaultPeriod, 90 * time.Minute, 400 * 24 * time.Hour}).Draw(t, "period")
	s := token("builder-token", now.Add(-rapid.SampledFrom([]time.Duration{time.Hour, period - time.Second, period, 2 * period}).Draw(t, "age")).Truncate(time.Second))
	for _, label := range []string{lastUsed, invalidSince} {
		if on := date.Draw(t, label); on != "" {
			s.Labels[label] = on
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "deleted") == 5 {
		reconciletest.Deleted[*metav1.PartialObjectMetadata](now)(s)
	}
	return View{
		Secret: s, Period: period, Since: date.Draw(t, "since"), Other: rapid.IntRange(0, 5).Draw(t, "other") == 5,
		Listed: rapid.IntRange(0, 3).Draw(t, "listed") > 0, Needed: rapid.IntRange(0, 3).Draw(t, "needed") == 0,
	}
}

func token(name string, created time.Time) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: reconciletest.Namespace, Name: name, UID: "4f1c", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(created),
		Labels:      map[string]string{},
		Annotations: map[string]string{corev1.ServiceAccountNameKey: "builder", corev1.ServiceAccountUIDKey: "b"},
	}}
}

// carriedOut gives the Secret the labels of the patch, or deletes it.
func carriedOut(v View, d reconcile.Decision, at time.Time) View {
	next := v.Secret.DeepCopy()
	for _, c := range d.Commands {
		var patch struct {
			Metadata struct{ Labels map[string]string }
		}
		if c.Verb == events.VerbDelete {
			reconciletest.Deleted[*metav1.PartialObjectMetadata](at)(next)
		} else if err := json.Unmarshal(c.Body, &patch); err != nil {
			panic(err)
		}
		for name, value := range patch.Metadata.Labels {
			next.Labels[name] = value
		}
	}
	v.Secret = next
	return v
}

// A token counts as used for the whole recorded day, and every wait ends at the exact second.
func TestTheLastDayCounts(t *testing.T) {
	v := View{Secret: token("builder-token", now.AddDate(-3, 0, 0)), Period: DefaultPeriod, Since: "2020-01-01", Listed: true}
	v.Secret.Labels[lastUsed] = "2029-06-01"
	at := time.Date(2029, 6, 2, 0, 0, 0, 0, time.UTC).Add(DefaultPeriod)
	if d := decide(v, at.Add(-1)); len(d.Commands) > 0 || !d.WakeAt.Equal(at) {
		t.Errorf("just before it is time: %+v", d)
	}
	if d := decide(v, at); len(d.Commands) != 1 || d.Commands[0].Verb != events.VerbPatch {
		t.Errorf("when it is time: %+v", d)
	}
	v.Secret.Labels[invalidSince] = "2030-06-02"
	at = time.Date(2030, 6, 3, 0, 0, 0, 0, time.UTC).Add(DefaultPeriod)
	if d := decide(v, at.Add(-1)); len(d.Commands) > 0 || !d.WakeAt.Equal(at) {
		t.Errorf("just before it ends: %+v", d)
	}
	if d := decide(v, at); len(d.Commands) != 2 || d.Commands[1].Verb != events.VerbDelete {
		t.Errorf("when it ends: %+v", d)
	}
}
