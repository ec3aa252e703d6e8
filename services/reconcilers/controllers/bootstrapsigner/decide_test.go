package bootstrapsigner

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now, reconciletest.Content(2, signed), reconciletest.Law[View]{Name: "in time", Holds: inTime})
}

func anyView(t *rapid.T) View {
	v := View{ConfigMap: bare("7"), Tokens: "5a", Unfit: rapid.IntRange(0, 5).Draw(t, "unfit") == 5}
	if v.Signed = rapid.IntRange(0, 3).Draw(t, "signed") > 0; v.Signed {
		v.At = now.Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds ago")) * time.Second)
		v.Unseen = rapid.IntRange(0, 3).Draw(t, "unseen") == 3
		if rapid.Bool().Draw(t, "one expires") {
			v.Until = new(now.Add(time.Duration(rapid.IntRange(-40, 10).Draw(t, "in seconds")) * time.Second))
		}
	}
	return v
}

func bare(version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "c", ResourceVersion: version}}
}

// signed returns the view after the writer has signed, and answered that no token expires.
func signed(v View, d reconcile.Decision, at time.Time) View {
	if len(d.Commands) > 0 {
		v.Signed, v.At, v.Until, v.Unseen = true, at, nil, false
	}
	return v
}

// inTime checks that an unsigned ConfigMap is signed now, and again when a token expires:
// no later, and no sooner than ten seconds after a writer found that the token had not
// expired. If the writer signed with a token that is not visible, it signs again after ten seconds.
func inTime(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	signs := len(d.Commands) == 1 && d.Commands[0].Signs() && d.Commands[0].If.ResourceVersion == v.ConfigMap.ResourceVersion
	expired := v.Signed && v.Until != nil && !now.Before(*v.Until)
	found := expired && !v.At.Before(*v.Until) && now.Sub(v.At) < 10*time.Second
	if v.Signed && v.Unseen {
		expired, found = true, now.Sub(v.At) < 10*time.Second
	}
	switch {
	case v.Unfit && len(d.Commands) > 0:
		return errors.New("it is signed again, and not taken")
	case v.Unfit:
		return nil
	case signs != (!v.Signed || expired && !found):
		return fmt.Errorf("it is signed: %v", signs)
	case !signs && (v.Until != nil || v.Unseen) && d.WakeAt.IsZero():
		return errors.New("it is not looked at when a token expires, or comes into sight")
	default:
		return nil
	}
}

// token returns the metadata of a Secret.
func token(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, UID: types.UID("uid-" + name), ResourceVersion: version}}
}

const canary = "canary-7Kd2-never-told"

func configMap(version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "c", ResourceVersion: version, Labels: map[string]string{"l": canary}},
		Data:       map[string]string{"kubeconfig": canary},
	}
}

// A signing counts for the version of the ConfigMap that it made, and for the tokens of
// that time. A view has no content of the ConfigMap.
func TestWhatIsSigned(t *testing.T) {
	world := func(version string, tokens ...*metav1.PartialObjectMetadata) *reconciletest.World {
		w := reconciletest.NewWorld(kinds.Secrets.Kind).Put(kinds.ConfigMaps.Kind, configMap(version))
		for _, t := range tokens {
			w.Put(kinds.Secrets.Kind, t)
		}
		return w
	}
	abcdef, other := token("bootstrap-token-abcdef", "3"), token("bootstrap-token-other", "3")
	first, ok := observe(world("7", abcdef), key)
	if !ok {
		t.Fatal("there is no view")
	}
	until := now.Add(time.Hour)
	did := func(status events.Status, version string, code int, by ...string) events.Result {
		text, _ := json.Marshal(query.Signatures{Until: &until, By: by})
		n, _ := json.Marshal(note{Tokens: first.Tokens})
		return events.Result{Status: status, Version: version, Code: code, Answer: &events.Answer{Body: text, Note: n}}
	}
	for what, c := range map[string]struct {
		seen   *reconciletest.World
		result events.Result
		uid    types.UID
		at     string
		signed bool
		unfit  bool
		unseen bool
	}{
		"signed":                         {world("7", abcdef), did(events.Applied, "7", 0), "c", "6", true, false, false},
		"there was nothing to sign":      {world("7", abcdef), did(events.Unchanged, "7", 0), "c", "7", true, false, false},
		"tried, and nothing stored":      {world("7", abcdef), did(events.DryRun, "8", 0), "c", "7", true, false, false},
		"tried before":                   {world("8", abcdef), did(events.DryRun, "9", 0), "c", "7", false, false, false},
		"signed, and changed since":      {world("8", abcdef), did(events.Applied, "7", 0), "c", "6", false, false, false},
		"another ConfigMap":              {world("7", abcdef), did(events.Applied, "7", 0), "before", "6", false, false, false},
		"another token":                  {world("7", abcdef, token("bootstrap-token-012345", "4")), did(events.Applied, "7", 0), "c", "6", false, false, false},
		"a token is gone":                {world("7"), did(events.Applied, "7", 0), "c", "6", false, false, false},
		"a token has changed":            {world("7", token("bootstrap-token-abcdef", "4")), did(events.Applied, "7", 0), "c", "6", false, false, false},
		"a Secret that signs nothing":    {world("7", abcdef, other), did(events.Applied, "7", 0), "c", "6", true, false, false},
		"not taken":                      {world("7", abcdef), did(events.Refused, "", 422), "c", "7", false, true, false},
		"not taken, changed since":       {world("8", abcdef), did(events.Refused, "", 422), "c", "7", false, false, false},
		"not allowed":                    {world("7", abcdef), did(events.Refused, "", 403), "c", "7", false, false, false},
		"the writer was late":            {world("7", abcdef), did(events.Conflict, "8", 409), "c", "7", false, false, false},
		"signed by a token that is seen": {world("7", abcdef), did(events.Applied, "7", 0, "bootstrap-token-abcdef"), "c", "6", true, false, false},
		"signed by one that is not":      {world("7", abcdef), did(events.Applied, "7", 0, "bootstrap-token-abcdef", "bootstrap-token-012345"), "c", "6", true, false, true},
	} {
		c.seen.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: c.uid, ResourceVersion: c.at, At: now, Results: []events.Result{c.result}})
		v, _ := observe(c.seen, key)
		if v.Signed != c.signed || v.Unfit != c.unfit || v.Unseen != c.unseen || c.signed && (!v.At.Equal(now) || v.Until == nil || !v.Until.Equal(until)) {
			t.Errorf("%s: the view has %+v", what, v)
		}
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), canary) {
			t.Errorf("%s: the view tells what is in the ConfigMap: %s", what, text)
		}
	}
	if v, _ := observe(world("7", other), key); v.Tokens == first.Tokens || reflect.DeepEqual(v, first) {
		t.Error("the views of other tokens are equal")
	}
}

// The one ConfigMap gets a turn when it changes, and when a Secret that may sign does.
func TestWhoseTurn(t *testing.T) {
	world, mine := reconciletest.NewWorld(), []events.Key{key}
	elsewhere, named := configMap("7"), configMap("7")
	elsewhere.Namespace, named.Name = "shop", "kube-root-ca.crt"
	signer, far := token("bootstrap-token-abcdef", "3"), token("bootstrap-token-abcdef", "3")
	far.Namespace = "shop"
	for what, c := range map[string]struct {
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		"it comes":                {kinds.ConfigMaps.Kind, nil, configMap("7"), mine},
		"it changes":              {kinds.ConfigMaps.Kind, configMap("6"), configMap("7"), mine},
		"it goes":                 {kinds.ConfigMaps.Kind, configMap("7"), nil, nil},
		"one of its name":         {kinds.ConfigMaps.Kind, nil, elsewhere, nil},
		"another one":             {kinds.ConfigMaps.Kind, nil, named, nil},
		"a token comes":           {kinds.Secrets.Kind, nil, signer, mine},
		"a token goes":            {kinds.Secrets.Kind, signer, nil, mine},
		"a Secret of users":       {kinds.Secrets.Kind, nil, far, nil},
		"one with too long an id": {kinds.Secrets.Kind, nil, token("bootstrap-token-abcdefg", "3"), nil},
		"one with another name":   {kinds.Secrets.Kind, nil, token("a-bootstrap-token-abcdef", "3"), nil},
	} {
		if got := world.Keys(Controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: the change asks for turns of %v", what, got)
		}
	}
	if _, ok := observe(world, key); ok {
		t.Error("observe finds a ConfigMap that is not there")
	}
	world.Put(kinds.ConfigMaps.Kind, elsewhere)
	if _, ok := observe(world, events.Key{Namespace: "shop", Name: key.Name}); ok {
		t.Error("observe finds a ConfigMap of another namespace")
	}
}
