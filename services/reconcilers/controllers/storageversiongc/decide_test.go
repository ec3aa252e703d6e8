package storageversiongc

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now, reconciletest.Content(3, applied), reconciletest.Law[View]{Name: "sure", Holds: sure})
}

func written(servers ...string) *apiserverinternalv1alpha1.StorageVersion {
	sv := &apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: "apps.deployments", UID: "u", ResourceVersion: "7"}}
	for _, server := range servers {
		sv.Status.StorageVersions = append(sv.Status.StorageVersions, apiserverinternalv1alpha1.ServerStorageVersion{
			APIServerID: server, EncodingVersion: "apps/v1", DecodableVersions: []string{"apps/v1"},
		})
	}
	return sv
}

// anyView returns a StorageVersion of some servers. Some have no lease in the view, and
// some have been asked about.
func anyView(t *rapid.T) View {
	v := View{StorageVersion: written()}
	for i := range rapid.IntRange(0, 3).Draw(t, "servers") {
		server := fmt.Sprint("s", i)
		entry := apiserverinternalv1alpha1.ServerStorageVersion{APIServerID: server, EncodingVersion: rapid.SampledFrom([]string{"v1", "v1", "v2"}).Draw(t, "version")}
		v.StorageVersion.Status.StorageVersions = append(v.StorageVersion.Status.StorageVersions, entry)
		if rapid.Bool().Draw(t, "unseen") {
			v.Unseen = append(v.Unseen, server)
		}
		if rapid.Bool().Draw(t, "asked") {
			if v.Leases == nil {
				v.Leases = map[string]bool{}
			}
			v.Leases[server] = rapid.Bool().Draw(t, "has a lease")
		}
	}
	v.At = now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds ago")) * time.Second)
	if rapid.IntRange(0, 7).Draw(t, "deleted") == 0 {
		v.StorageVersion.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return v
}

// applied returns the view after a decision was carried out, if no lease exists that is
// not seen.
func applied(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		switch {
		case c.Verb == events.VerbAsk && v.Leases[c.Name]:
			v.At = now
		case c.Verb == events.VerbAsk:
			leases := map[string]bool{c.Name: false}
			for server, has := range v.Leases {
				leases[server] = has
			}
			v.Leases, v.At = leases, now
		case c.Verb == events.VerbDelete:
			v.StorageVersion = written()
		default:
			next := new(apiserverinternalv1alpha1.StorageVersion)
			if err := json.Unmarshal(c.Body, next); err != nil {
				panic(err)
			}
			v.StorageVersion = next
			v.Unseen = slices.DeleteFunc(slices.Clone(v.Unseen), func(server string) bool { return !names(next, server) })
		}
	}
	return v
}

func names(sv *apiserverinternalv1alpha1.StorageVersion, server string) bool {
	return slices.ContainsFunc(sv.Status.StorageVersions, func(s apiserverinternalv1alpha1.ServerStorageVersion) bool { return s.APIServerID == server })
}

// sure: a turn that writes removes exactly the unseen servers that have no lease by a
// recent answer.
func sure(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		next := new(apiserverinternalv1alpha1.StorageVersion)
		if command.Verb == events.VerbUpdate && json.Unmarshal(command.Body, next) != nil {
			return errors.New("it writes what cannot be read")
		}
		for _, s := range v.StorageVersion.Status.StorageVersions {
			has, told := v.Leases[s.APIServerID]
			gone := told && !has && slices.Contains(v.Unseen, s.APIServerID) && now.Sub(v.At) < lasting
			if command.Verb != events.VerbAsk && !names(next, s.APIServerID) != gone {
				return fmt.Errorf("the server %s is gone: %v, and is taken out: %v", s.APIServerID, gone, !gone)
			}
		}
	}
	return nil
}

func lease(name, component string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{identity: component}}}
}

func TestObserve(t *testing.T) {
	sv, key := written("a", "b", "c", "c"), events.Key{Name: "apps.deployments"}
	world := reconciletest.NewWorld().Put(kinds.StorageVersions.Kind, sv).Put(kinds.Leases.Kind, lease("a", apiServer), lease("b", "kube-scheduler"))
	if v, ok := observe(world, key); !ok || !slices.Equal(v.Unseen, []string{"b", "c"}) || v.Leases != nil {
		t.Errorf("the view has %+v", v)
	}
	if _, ok := observe(world, events.Key{Name: "pods"}); ok {
		t.Error("observe finds a StorageVersion that is not there")
	}
	if keys := world.Keys(Controller, kinds.Leases.Kind, lease("a", apiServer), nil); len(keys) > 0 {
		t.Errorf("a lease makes it the turn of %v", keys)
	}
	result := func(name string, status events.Status, body any) events.Result {
		r := events.Result{Status: status, Ref: events.Ref{Kind: kinds.Leases.Name, Namespace: metav1.NamespaceSystem, Name: name}}
		if body != nil {
			r.Answer = &events.Answer{Body: reconcile.Body(body)}
		}
		return r
	}
	last := events.Outcome{Key: key, Lane: events.LaneWrite, UID: "u", ResourceVersion: "7", At: now, Results: []events.Result{
		result("a", events.Answered, lease("a", apiServer)), result("b", events.Answered, lease("b", "kube-scheduler")),
		result("c", events.Absent, nil), result("d", events.Failed, nil), result("e", events.Answered, "no lease"), result("f", events.Answered, query.Users{}),
	}}
	v, _ := observe(world.Remember(last), key)
	if v.Unread == nil || !v.Unread.At.Equal(now) {
		t.Errorf("what is no lease is %+v", v.Unread)
	}
	if want := map[string]bool{"a": true, "b": false, "c": false}; !v.At.Equal(now) || fmt.Sprint(v.Leases) != fmt.Sprint(want) {
		t.Errorf("it has heard %v at %v, want %v", v.Leases, v.At, want)
	}
	for _, change := range []func(*events.Outcome){
		func(o *events.Outcome) { o.UID = types.UID("before") }, func(o *events.Outcome) { o.ResourceVersion = "6" },
	} {
		other := last
		change(&other)
		if v, _ := observe(world.Remember(other), key); v.Leases != nil {
			t.Errorf("of what is not so any more it has heard %v", v.Leases)
		}
	}
}

// When a server is removed, the status has the version on which the others agree. The time of
// the condition changes only if that version, or whether they agree, changes.
func TestWhatIsLeftAgrees(t *testing.T) {
	since := metav1.NewTime(now.Add(-time.Hour))
	for name, c := range map[string]struct {
		was      []string // versions of the servers a, b and c, of which c goes
		agreed   string
		is       string
		status   apiserverinternalv1alpha1.ConditionStatus
		sinceNow bool
	}{
		"as before":          {[]string{"v1", "v1", "v1"}, "v1", "v1", apiserverinternalv1alpha1.ConditionTrue, false},
		"on another version": {[]string{"v2", "v2", "v1"}, "v1", "v2", apiserverinternalv1alpha1.ConditionTrue, true},
		"at last":            {[]string{"v1", "v1", "v2"}, "", "v1", apiserverinternalv1alpha1.ConditionTrue, true},
		"no longer":          {[]string{"v1", "v2", "v1"}, "v1", "", apiserverinternalv1alpha1.ConditionFalse, true},
		"still not":          {[]string{"v1", "v2", "v3"}, "", "", apiserverinternalv1alpha1.ConditionFalse, false},
	} {
		v := View{StorageVersion: written("a", "b", "c"), Unseen: []string{"c"}, Leases: map[string]bool{"c": false}, At: now}
		status := &v.StorageVersion.Status
		for i := range status.StorageVersions {
			status.StorageVersions[i].EncodingVersion = c.was[i]
		}
		said := apiserverinternalv1alpha1.StorageVersionCondition{
			Type: apiserverinternalv1alpha1.AllEncodingVersionsEqual, Status: apiserverinternalv1alpha1.ConditionFalse, LastTransitionTime: since,
		}
		if c.agreed != "" {
			status.CommonEncodingVersion, said.Status = &c.agreed, apiserverinternalv1alpha1.ConditionTrue
		}
		status.Conditions = []apiserverinternalv1alpha1.StorageVersionCondition{said}
		left := applied(v, Controller.Decide(v, now), now).StorageVersion.Status
		if len(left.StorageVersions) != 2 || len(left.Conditions) != 1 {
			t.Fatalf("%s: left is %+v", name, left)
		}
		is := ""
		if left.CommonEncodingVersion != nil {
			is = *left.CommonEncodingVersion
		}
		got := left.Conditions[0]
		if is != c.is || got.Status != c.status || got.LastTransitionTime.Equal(&since) == c.sinceNow {
			t.Errorf("%s: the API servers agree on %q: %s since %v", name, is, got.Status, got.LastTransitionTime)
		}
	}
}
