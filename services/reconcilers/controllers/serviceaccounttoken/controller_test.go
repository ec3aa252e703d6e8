package serviceaccounttoken

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var key = events.Key{Namespace: reconciletest.Namespace, Name: "key"}

func newWorld() *reconciletest.World {
	return reconciletest.NewWorld(kinds.Secrets.Kind, kinds.ServiceAccounts.Kind)
}

func TestWhoseTokenItIs(t *testing.T) {
	for what, c := range map[string]struct {
		says    types.UID
		account *corev1.ServiceAccount
		want    types.UID
	}{
		"it does not say which":    {"", account("builder", "b"), "b"},
		"it says which":            {"b", account("builder", "b"), "b"},
		"it is of the one before":  {"before", account("builder", "b"), ""},
		"there is only another":    {"", account("other", "o"), ""},
		"there is one that leaves": {"b", leaving(account("builder", "b")), "b"},
	} {
		world := newWorld()
		world.Put(kinds.Secrets.Kind, token("key", c.says))
		world.Put(kinds.ServiceAccounts.Kind, c.account)
		if v, ok := observe(world, key, "5a"); !ok || v.Account != c.want || v.Secret == nil {
			t.Errorf("%s: the Secret is of the account %q, want %q", what, v.Account, c.want)
		}
	}
	world := newWorld()
	plain := token("key", "")
	plain.Annotations = nil
	world.Put(kinds.Secrets.Kind, plain)
	if _, ok := observe(world, key, "5a"); ok {
		t.Error("a Secret that names no account has a turn")
	}
}

func leaving(a *corev1.ServiceAccount) *corev1.ServiceAccount {
	reconciletest.Deleted[*corev1.ServiceAccount](reconciletest.Now)(a)
	return a
}

// An outcome counts for the Secret, the version and the root certificate that it is about.
func TestWhatIsRemembered(t *testing.T) {
	fill, proof := note{Account: "builder", UID: "b", Root: "5a"}, note{Account: "builder", Proof: true}
	for what, c := range map[string]struct {
		result events.Result
		note   any
		uid    types.UID
		at     string
		want   View
	}{
		"filled":                       {events.Result{Status: events.Applied, Version: "7"}, fill, "4f1c", "6", View{Filled: true}},
		"nothing was lacking":          {events.Result{Status: events.Unchanged, Version: "7"}, fill, "4f1c", "7", View{Filled: true}},
		"filled, and changed since":    {events.Result{Status: events.Applied, Version: "6"}, fill, "4f1c", "5", View{}},
		"another root certificate":     {events.Result{Status: events.Applied, Version: "7"}, note{Account: "builder", UID: "b", Root: "old"}, "4f1c", "6", View{}},
		"another Secret was filled":    {events.Result{Status: events.Applied, Version: "7"}, fill, "other", "6", View{}},
		"a proof fills nothing":        {events.Result{Status: events.Unchanged, Version: "7"}, proof, "4f1c", "7", View{}},
		"the writer was late":          {events.Result{Status: events.Conflict, Code: 409, Version: "7"}, fill, "4f1c", "6", View{}},
		"no token, says the writer":    {events.Result{Status: events.Refused, Code: 422, Reason: query.NoToken}, fill, "4f1c", "6", View{Other: true}},
		"no token, says the proof":     {events.Result{Status: events.Refused, Code: 422, Reason: "Invalid"}, proof, "4f1c", "6", View{Other: true}},
		"another Secret is no token":   {events.Result{Status: events.Refused, Code: 422, Reason: query.NoToken}, fill, "other", "6", View{}},
		"not taken":                    {events.Result{Status: events.Refused, Code: 422, Reason: "Invalid"}, fill, "4f1c", "7", View{Unfit: true}},
		"not taken, and changed since": {events.Result{Status: events.Refused, Code: 422, Reason: "Invalid"}, fill, "4f1c", "6", View{}},
		"no note":                      {events.Result{Status: events.Applied, Version: "7"}, nil, "4f1c", "6", View{}},
	} {
		world := newWorld()
		world.Put(kinds.Secrets.Kind, token("key", "b"))
		world.Remember(outcome(c.result, c.note, c.uid, c.at))
		v, _ := observe(world, key, "5a")
		got := View{Filled: v.Filled, Unfit: v.Unfit, Other: v.Other}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

func outcome(r events.Result, n any, uid types.UID, at string) events.Outcome {
	if n != nil {
		text, _ := json.Marshal(n)
		r.Answer = &events.Answer{Note: text}
	}
	return events.Outcome{Key: key, Lane: events.LaneWrite, UID: uid, ResourceVersion: at, Results: []events.Result{r}}
}

// A deleted token is removed from the list of its account, which may not be seen to list it
// yet. If the account is not remembered, the token is removed from every list.
func TestWhoListsWhatIsGone(t *testing.T) {
	lists := []*corev1.ServiceAccount{account("builder", "b", "pull", "key"), account("deployer", "d", "key"), account("none", "n", "other")}
	did := events.Result{Status: events.Applied, Version: "7"}
	for what, c := range map[string]struct {
		outcome *events.Outcome
		want    []string
	}{
		"it is not remembered":       {nil, []string{"builder", "deployer"}},
		"it was the builder's":       {new(outcome(did, note{Account: "builder", UID: "b"}, "4f1c", "6")), []string{"builder"}},
		"of the builder by name":     {new(outcome(did, note{Account: "builder", Proof: true}, "4f1c", "6")), []string{"builder"}},
		"of the builder before":      {new(outcome(did, note{Account: "builder", UID: "before"}, "4f1c", "6")), nil},
		"it is not seen to list it":  {new(outcome(did, note{Account: "none", UID: "n"}, "4f1c", "6")), []string{"none"}},
		"it has been taken off":      {new(outcome(did, note{Account: "builder", UID: "b", Gone: true}, "4f1c", "6")), nil},
		"that did not succeed":       {new(outcome(events.Result{Status: events.Failed}, note{Account: "builder", UID: "b", Gone: true}, "4f1c", "6")), []string{"builder"}},
		"it was no token":            {new(outcome(events.Result{Status: events.Refused, Code: 422, Reason: query.NoToken}, note{Account: "builder", UID: "b"}, "4f1c", "6")), nil},
		"it was none, as was proven": {new(outcome(events.Result{Status: events.Refused, Code: 422}, note{Account: "builder", Proof: true}, "4f1c", "6")), nil},
	} {
		world := newWorld()
		world.Put(kinds.ServiceAccounts.Kind, lists[0], lists[1], lists[2])
		if c.outcome != nil {
			world.Remember(*c.outcome)
		}
		v, ok := observe(world, key, "5a")
		var got []string
		for _, a := range v.Lists {
			got = append(got, a.Name)
		}
		if !slices.Equal(got, c.want) || ok != (len(c.want) > 0) || v.Gone != "key" {
			t.Errorf("%s: taken off the lists of %v, want %v", what, got, c.want)
		}
	}
}

// A new token may take the name of another one before the deletion of that was seen. The
// earlier token is removed from its account's list all the same.
func TestWhoListsTheOneBefore(t *testing.T) {
	did := events.Result{Status: events.Applied, Version: "6"}
	for what, c := range map[string]struct {
		outcome events.Outcome
		want    []string
	}{
		"it was another account's":          {outcome(did, note{Account: "deployer", UID: "d"}, "before", "5"), []string{"deployer"}},
		"of another account of that name":   {outcome(did, note{Account: "deployer", UID: "before"}, "before", "5"), nil},
		"of one that is gone":               {outcome(did, note{Account: "gone", UID: "g"}, "before", "5"), nil},
		"it was the same account's":         {outcome(did, note{Account: "builder", UID: "b"}, "before", "5"), nil},
		"it is the same token":              {outcome(did, note{Account: "deployer", UID: "d"}, "4f1c", "5"), nil},
		"it has been taken off":             {outcome(did, note{Account: "deployer", UID: "d", Gone: true}, "", ""), nil},
		"it was to be, and that has failed": {outcome(events.Result{Status: events.Failed}, note{Account: "deployer", UID: "d", Gone: true}, "", ""), []string{"deployer"}},
		"it was no token":                   {outcome(events.Result{Status: events.Refused, Code: 422, Reason: query.NoToken}, note{Account: "deployer", UID: "d"}, "before", "5"), nil},
		"it is not remembered":              {events.Outcome{Key: key, Lane: events.LaneWrite}, nil},
	} {
		world := newWorld()
		world.Put(kinds.Secrets.Kind, token("key", "b"))
		world.Put(kinds.ServiceAccounts.Kind, account("builder", "b", "key"), account("deployer", "d", "key"))
		world.Remember(c.outcome)
		v, _ := observe(world, key, "5a")
		var got []string
		for _, a := range v.Lists {
			got = append(got, a.Name)
		}
		if !slices.Equal(got, c.want) || v.Secret == nil || (v.Gone == "key") != (len(c.want) > 0) {
			t.Errorf("%s: taken off the lists of %v, want %v", what, got, c.want)
		}
	}
}

func TestWhoseTurn(t *testing.T) {
	world := newWorld()
	of, plain := token("key", "b"), token("plain", "")
	plain.Annotations = nil
	elsewhere := token("key", "")
	elsewhere.Namespace = "elsewhere"
	other := token("others", "")
	other.Annotations[corev1.ServiceAccountNameKey] = "other"
	world.Put(kinds.Secrets.Kind, of, plain, elsewhere, other)
	builder := account("builder", "b")
	for what, c := range map[string]struct {
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		"a new token":                 {kinds.Secrets.Kind, nil, of, []events.Key{key}},
		"a token that has changed":    {kinds.Secrets.Kind, of, of, []events.Key{key}},
		"a token that is gone":        {kinds.Secrets.Kind, of, nil, []events.Key{key}},
		"another Secret":              {kinds.Secrets.Kind, nil, plain, nil},
		"another Secret that is gone": {kinds.Secrets.Kind, plain, nil, nil},
		"no longer of an account":     {kinds.Secrets.Kind, of, plain, nil},
		"a new account":               {kinds.ServiceAccounts.Kind, nil, builder, []events.Key{key}},
		"an account that is gone":     {kinds.ServiceAccounts.Kind, builder, nil, []events.Key{key}},
		"an account made anew":        {kinds.ServiceAccounts.Kind, builder, account("builder", "c"), []events.Key{key}},
		"an account that has changed": {kinds.ServiceAccounts.Kind, builder, builder, nil},
	} {
		if got := world.Keys(controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v, want %v", what, got, c.want)
		}
	}
}

// Every root certificate has its own digest, and so has none.
func TestTheRootCertificateIsToldApart(t *testing.T) {
	seen := map[string]bool{}
	for _, ca := range []string{"", "a", "b"} {
		world := newWorld()
		world.Put(kinds.Secrets.Kind, token("key", ""))
		text, _, err := New(Config{RootCA: []byte(ca), Tokens: true}).View(world, key)
		var v View
		if err != nil || json.Unmarshal(text, &v) != nil || v.Root == "" || seen[v.Root] {
			t.Errorf("%q: the view is %s, %v", ca, text, err)
		}
		seen[v.Root] = true
	}
}
