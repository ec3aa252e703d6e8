package redact_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

var applied = []string{
	"kubectl.kubernetes.io/last-applied-configuration", "kapp.k14s.io/original", "objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied",
}

// A copy of the applied object is removed, unless the policy keeps it for the kind or the object
// and more than metadata is published; the rules apply in any case.
func TestCopiesAreKeptWhereTheyMayBe(t *testing.T) {
	all := redact.Policy{
		Rules:  rules(t, "configmaps:.data"),
		Copies: map[kinds.Name][]string{"pods": nil, "services": {"kept", "too"}},
	}
	for _, note := range applied {
		for _, c := range []struct {
			kind        kinds.Name
			name        string
			whole, want bool
		}{
			{"pods", "any", true, true}, {"pods", "any", false, false}, {"services", "kept", true, true}, {"services", "too", true, true},
			{"services", "other", true, false}, {"services", "kept", false, false}, {"secrets", "any", true, false}, {"configmaps", "any", true, false},
		} {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.name, Annotations: map[string]string{note: canary, "example.com/a": "b"}}}
			ruled := c.kind == "configmaps"
			if got := all.Hide(c.kind, m, c.whole); got == (c.want && !ruled) {
				t.Errorf("%s %s, whole %t, with %s: something may be hidden: %t", c.kind, c.name, c.whole, note, got)
			}
			if _, there := m.Annotations[note]; there != c.want || m.Annotations["example.com/a"] != "b" {
				t.Errorf("%s %s, whole %t, says %v", c.kind, c.name, c.whole, m.Annotations)
			}
		}
	}
	m := &corev1.ConfigMap{Data: map[string]string{"a": canary}}
	if !all.Hide("configmaps", m, true) || m.Data["a"] != redact.Marker {
		t.Errorf("with no copy the object is told as %v, want the marker", m.Data)
	}
	if plain := (&corev1.Pod{}); all.Hide("pods", plain, true) || all.Hide("secrets", plain, false) || plain.Annotations != nil {
		t.Errorf("an object that no rule is about has the annotations %v", plain.Annotations)
	}
}

// withGetters returns a copy of its annotations, as untyped objects do.
type withGetters struct {
	metav1.ObjectMeta
}

func (w *withGetters) GetAnnotations() map[string]string { return maps.Clone(w.Annotations) }

// Annotations are removed also from objects whose getter returns a copy.
func TestAnnotationsThatAreCopies(t *testing.T) {
	of := func() *withGetters {
		return &withGetters{metav1.ObjectMeta{Annotations: map[string]string{applied[0]: canary, "example.com/token": canary, "kubernetes.io/a": "b"}}}
	}
	m := of()
	if redact.Withhold(m); fmt.Sprint(m.Annotations) != "map[example.com/token:"+redact.Marker+" kubernetes.io/a:b]" {
		t.Errorf("withheld, it says %v", m.Annotations)
	}
	m = of()
	if (redact.Policy{}).Hide("secrets", m, false); m.Annotations[applied[0]] != "" || len(m.Annotations) != 2 {
		t.Errorf("an object whose copy is withheld has the annotations %v", m.Annotations)
	}
	m = of()
	if rules(t, "widgets.example.com:.metadata.annotations['example.com/x']").Hide("widgets.example.com", m); len(m.Annotations) != 2 {
		t.Errorf("under a rule, it says %v", m.Annotations)
	}
}

func TestWhatIsMarked(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":"b"}`: false, "": false, `{"a":"` + redact.Marker + `"}`: true,
		`{"a":"` + base64.StdEncoding.EncodeToString([]byte(redact.Marker)) + `"}`: true,
	} {
		if redact.Marked([]byte(text)) != want {
			t.Errorf("%s is marked: %t", text, !want)
		}
	}
	for _, note := range append(slices.Clone(applied), "example.com/a") {
		if got := redact.Copied([]byte(`{"metadata":{"annotations":{"` + note + `":"{}"}}}`)); got != (note != "example.com/a") {
			t.Errorf("with the annotation %s Copied is %t, want the opposite", note, got)
		}
	}
}

func TestRulesOfAKind(t *testing.T) {
	all := rules(t, "pods:.spec.nodeName", "configmaps:.data", "pods:.status")
	if got := fmt.Sprint(all.Of("pods"), all.Of("configmaps"), all.Of("services")); got != "[pods:.spec.nodeName pods:.status] [configmaps:.data] []" {
		t.Errorf("the rules of pods, configmaps and services are %s", got)
	}
}

// A rule may hide all annotations, one of them, or those of an unknown kind.
func TestAnnotationsMayBeHidden(t *testing.T) {
	for _, text := range []string{
		"pods:.metadata.annotations", "pods:.metadata.annotations['a.b/c']", "widgets.example.com:.metadata.annotations", "configmaps:.data[*]",
		"pods:.spec.containers[*]", "deployments.apps:.spec.template.spec.containers[*].env[*].value",
	} {
		if _, err := redact.Parse(text); err != nil {
			t.Errorf("parse %s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"widgets.example.com:.metadata.labels": "only annotations", "pods:.spec.containers[*].nme": "there is no .spec.containers[*].nme",
		"deployments.apps:.spec.template.spec.nodName": "there is no .spec.template.spec.nodName", "pods:.apiVersion": "known by",
	} {
		if _, err := redact.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", text, err, want)
		}
	}
}

func TestAnEmptyPathIsNone(t *testing.T) {
	if p, err := redact.ParsePath(""); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty path is parsed as %v, %v; want an error", p, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a path that is none is taken for one")
		}
	}()
	redact.MustParsePath("data")
}

// Inner, Tagged and Named are parts of outer.
type (
	Inner struct {
		Deep string `json:"deep"`
	}
	Tagged struct {
		Deepest string `json:"deepest"`
	}
	Named struct {
		Deeper string `json:"deeper"`
	}
)

type outer struct {
	Inner  `json:",inline"`
	Tagged `json:"tagged"`
	Named  Named `json:"named"`
	Loose  Named
	Any    any      `json:"any"`
	List   []string `json:"list"`
	Lists  [][]byte `json:"lists"`
	Spec   string   `json:"other"`
	Status string
	Number *int   `json:"number"`
	Short  string `json:"short"`
	Bytes  []byte `json:"bytes"`
}

// A path selects fields by their JSON names, and no fields that are not in JSON.
func TestAPathGoesByJSONsNames(t *testing.T) {
	o := &outer{Inner: Inner{"a"}, Tagged: Tagged{"k"}, Named: Named{"b"}, Loose: Named{"l"}, Any: map[string]any{"c": "d", "e": []any{"f", 1}}, List: []string{"g"}, Spec: "h", Status: "i"}
	for path, want := range map[string]int{
		".deep": 1, ".named.deeper": 1, ".tagged.deepest": 1, ".deepest": 0, ".deeper": 0, ".Inner": 0, ".any.c": 1, ".any.e[*]": 2, ".any.e": 1,
		".list[*]": 1, ".list.x": 0, ".spec": 0, ".other": 1, ".status": 0, ".number": 1, ".number.x": 0, ".Spec": 0,
	} {
		if found := redact.MustParsePath(path).Find(o); len(found) != want {
			t.Errorf("%s leads to %v, want %d", path, found, want)
		}
	}
	if got := (redact.Path{{}}).Find(o); len(got) != 0 {
		t.Errorf("no name leads to %v", got)
	}
}

// values are the values in an object, by field.
func (o *outer) values() map[string]string {
	return map[string]string{
		"deep": o.Deep, "named": o.Named.Deeper, "loose": o.Loose.Deeper, "any": fmt.Sprint(o.Any), "list": fmt.Sprintf("%q", o.List), "lists": fmt.Sprintf("%q", o.Lists),
		"other": o.Spec, "status": o.Status, "number": fmt.Sprint(*o.Number), "short": o.Short, "bytes": string(o.Bytes),
	}
}

// Text of any length is replaced by the marker, in any container; a number becomes zero. Values
// outside of the path stay unchanged.
func TestHideInWhateverHoldsIt(t *testing.T) {
	filled := func() *outer {
		seven := 7
		return &outer{
			Inner: Inner{canary}, Named: Named{canary}, Loose: Named{canary}, Any: map[string]any{"c": canary, "e": []any{canary, 1.5}, "n": nil},
			List: []string{canary, ""}, Lists: [][]byte{[]byte(canary), {}}, Spec: canary, Status: canary, Number: &seven, Short: "s", Bytes: []byte("s"),
		}
	}
	for path, want := range map[string]string{
		".deep": "deep: M", ".named": "named: M", ".named.deeper": "named: M", ".deeper": "", ".any.c": "any: map[c:M e:[C 1.5] n:<nil>]",
		".any.e[*]": "any: map[c:C e:[M 0] n:<nil>]", ".any.e": "any: map[c:C e:[M 0] n:<nil>]", ".any": "any: map[c:M e:[M 0] n:<nil>]",
		".list": `list: ["M" "M"]`, ".list[*]": `list: ["M" "M"]`, ".list.x": "", ".lists": `lists: ["M" ""]`, ".lists[*]": `lists: ["M" ""]`,
		".number": "number: 0", ".number.x": "", ".other": "other: M", ".spec": "", ".status": "", ".short": "short: M", ".bytes": "bytes: M", ".x.y": "",
	} {
		o, got := filled(), ""
		redact.MustParsePath(path).Hide(o)
		for field, before := range filled().values() {
			if after := o.values()[field]; after != before {
				got += field + ": " + strings.NewReplacer(canary, "C", redact.Marker, "M").Replace(after)
			}
		}
		if got != want {
			t.Errorf("%s changes %q, want %q", path, got, want)
		}
	}
}
