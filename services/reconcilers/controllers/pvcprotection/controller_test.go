package pvcprotection

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func pvc(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: reconciletest.Namespace, Name: name, UID: "u", ResourceVersion: "1", Finalizers: []string{guard},
	}}
}

func deleted(c *corev1.PersistentVolumeClaim, ago time.Duration) *corev1.PersistentVolumeClaim {
	reconciletest.Deleted[*corev1.PersistentVolumeClaim](now.Add(-ago))(c)
	return c
}

func user(name, claim string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.On("n1"))
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	return p
}

func ephemeral(name string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.On("n1"))
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	return p
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Claim: pvc("c")}
		v.Claim.Finalizers = rapid.SampledFrom([][]string{nil, {guard}, {"x", guard}, {"x"}}).Draw(t, "finalizers")
		if rapid.Bool().Draw(t, "deleted") {
			deleted(v.Claim, time.Duration(rapid.IntRange(0, 4).Draw(t, "ago"))*time.Second)
		}
		v.Seen = anyUsers(t)
		if rapid.Bool().Draw(t, "asked") {
			users := anyUsers(t)
			v.Users, v.At = &users, now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "answered, seconds ago"))*time.Second)
		}
		return v
	}), now, reconciletest.Content(3, applied), reconciletest.Law[View]{Name: "sure", Holds: sure})
}

// anyUsers returns some pods that need the claim, or do not.
func anyUsers(t *rapid.T) query.Users {
	var all query.Users
	all.Pods = rapid.SampledFrom([][]query.User{nil, {{Name: "p", UID: "up"}}, {{Name: "c", UID: "uc", Own: true}}}).Draw(t, "users")
	all.Count = len(all.Pods)
	if rapid.IntRange(0, 9).Draw(t, "more than are named") == 0 {
		all.Count++
	}
	return all
}

// applied returns the view after a decision was carried out, if no pod uses the claim.
func applied(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		if c.Verb == events.VerbAsk {
			v.Users, v.At = &query.Users{}, now
			continue
		}
		v.Claim = &corev1.PersistentVolumeClaim{}
		if err := json.Unmarshal(c.Body, v.Claim); err != nil {
			panic(err)
		}
	}
	return v
}

// sure: the finalizer is removed only because of a recent answer that names no pod that
// needs the claim.
func sure(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		next := new(corev1.PersistentVolumeClaim)
		if command.Verb == events.VerbAsk || json.Unmarshal(command.Body, next) != nil || slices.Contains(next.Finalizers, guard) {
			continue
		}
		if v.Claim.DeletionTimestamp == nil || v.Users == nil || v.Users.Need(v.Claim) || now.Sub(v.At) > lasting {
			return errors.New("it lets a claim go of which it does not know that no pod needs it")
		}
	}
	return nil
}

// Which pods need a claim, and which do not.
func TestUses(t *testing.T) {
	mine := deleted(pvc("p-data"), time.Hour)
	owner := ephemeral("p")
	mine.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: owner.UID, Controller: ptr.To(true)}}
	shut := func(p *corev1.Pod) *corev1.Pod {
		reconciletest.Deleted[*corev1.Pod](now)(p)
		p.DeletionGracePeriodSeconds = ptr.To(int64(0))
		return p
	}
	homeless, done, stranger := user("a", "p-data"), user("a", "p-data"), ephemeral("p")
	homeless.Spec.NodeName, done.Status.Phase, stranger.UID = "", corev1.PodSucceeded, "another"
	for what, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a pod that runs": {user("a", "p-data"), true}, "one that has ended": {done, true}, "one without a node": {homeless, false},
		"one that is shut down": {shut(user("a", "p-data")), true}, "its own pod": {owner, true},
		"its own pod, shut down": {shut(ephemeral("p")), false}, "a namesake of its own pod": {stranger, false},
	} {
		var seen query.Users
		if seen.Take(c.pod, mine.Name); seen.Need(mine) != c.want {
			t.Errorf("%s needs the claim: %v", what, !c.want)
		}
	}
}

func TestObserve(t *testing.T) {
	claim := pvc("p-data")
	world := reconciletest.NewWorld().Put(kinds.PersistentVolumeClaims.Kind, claim).
		Put(kinds.Pods.Kind, user("a", "p-data"), user("b", "other"), ephemeral("p"))
	key := events.Key{Namespace: reconciletest.Namespace, Name: "p-data"}
	if v, ok := observe(world, key); !ok || len(v.Seen.Pods) > 0 {
		t.Errorf("of a claim that lives the view has %+v, found: %v", v, ok)
	}
	deleted(claim, time.Hour)
	if v, _ := observe(world, key); v.Seen.Count != 2 || len(v.Seen.Pods) != 2 || v.Users != nil {
		t.Errorf("before anybody was asked it sees %+v", v)
	}
	want := []events.Key{key, {Namespace: reconciletest.Namespace, Name: "other"}}
	if got := world.Keys(Controller, kinds.Pods.Kind, user("b", "other"), ephemeral("p")); !slices.Equal(got, want) {
		t.Errorf("a pod makes it the turn of %v", got)
	}
}

// An answer counts for the claim that it is about, as long as the claim does not change.
func TestAnswers(t *testing.T) {
	claim := deleted(pvc("c"), time.Hour)
	key := events.Key{Namespace: reconciletest.Namespace, Name: "c"}
	answer := func(uid types.UID, version string, status events.Status, body string) events.Outcome {
		return events.Outcome{
			Key: key, Lane: events.LaneWrite, UID: uid, ResourceVersion: version, At: now,
			Results: []events.Result{{Status: status, Answer: &events.Answer{Body: json.RawMessage(body)}}},
		}
	}
	for what, c := range map[string]struct {
		last          events.Outcome
		heard, unread bool
	}{
		"to it":                    {answer("u", "1", events.Answered, `{}`), true, false},
		"to a claim of its name":   {answer("before", "1", events.Answered, `{}`), false, false},
		"before something changed": {answer("u", "0", events.Answered, `{}`), false, false},
		"that it may not have":     {answer("u", "1", events.Refused, `{}`), false, false},
		"that cannot be read":      {answer("u", "1", events.Answered, `no`), false, true},
		"of another shape":         {answer("u", "1", events.Answered, `{"warnings":[]}`), false, true},
	} {
		world := reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.PersistentVolumeClaims.Kind, claim).Remember(c.last)
		if v, _ := observe(world, key); (v.Users != nil) != c.heard || (v.Unread != nil) != c.unread {
			t.Errorf("an answer %s is heard: %v, cannot be read: %+v", what, v.Users != nil, v.Unread)
		}
	}
}
