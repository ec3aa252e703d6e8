package redact

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Rule hides what a path leads to in the objects of a kind.
type Rule struct {
	Kind kinds.Name
	// Spared are the names of objects that it is not about, in whatever namespace.
	Spared []string
	Path   Path
}

// Rules are all that is hidden.
type Rules []Rule

// Parse reads a rule: KIND:PATH, or KIND!NAME:PATH for all objects but those of that
// name.
//
// Errors: it is none, or what it hides is what an object is known by; the message says
// what to write.
func Parse(text string) (Rule, error) {
	what, path, ok := strings.Cut(text, ":.")
	if !ok {
		return Rule{}, fmt.Errorf("%q is no rule: write KIND:PATH, such as configmaps:.data or pods:.spec.containers[*].env[*].value", text)
	}
	names := strings.Split(what, "!")
	r := Rule{Kind: kinds.Name(names[0]), Spared: names[1:]}
	if r.Kind == "" || slices.Contains(r.Spared, "") {
		return Rule{}, fmt.Errorf("%q is no rule: the kind or a name is missing", text)
	}
	var err error
	if r.Path, err = ParsePath("." + path); err != nil {
		return Rule{}, err
	}
	return r, r.possible()
}

func (r Rule) String() string {
	return strings.Join(append([]string{string(r.Kind)}, r.Spared...), "!") + ":" + r.Path.String()
}

// annotations are all that may be hidden of an object's metadata.
var annotations = Path{{Name: "metadata"}, {Name: "annotations"}}

// possible is an error where a rule would hide what everybody must see, or where the
// kind has nothing.
func (r Rule) possible() error {
	switch first := r.Path[0].Name; {
	case first == "kind" || first == "apiVersion" || r.Path[0].Each:
		return fmt.Errorf("%v: this is what an object is known by, and cannot be hidden", r)
	case first == "metadata" && !annotations.Covers(r.Path):
		return fmt.Errorf("%v: of the metadata only annotations can be hidden; by the rest objects are known, selected and collected", r)
	case annotations.Covers(r.Path):
		return nil
	}
	for gvk, t := range kinds.Scheme().AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		if _, object := reflect.New(t).Interface().(metav1.Object); object && kinds.NameOf(plural.Group, plural.Resource) == r.Kind {
			if err := r.Path.fits(t, 0); err != nil {
				return fmt.Errorf("%v: %w in %s", r, err, r.Kind)
			}
		}
	}
	return nil // of a kind without a type here nothing is told but metadata
}

// copies are the annotations in which tools keep the whole object as it was applied.
var copies = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	"kapp.k14s.io/original",
	"objectset.rio.cattle.io/applied",
	"banzaicloud.com/last-applied",
}

// Copied tells whether an object, as JSON or protobuf, has a copy of itself in an
// annotation.
func Copied(object []byte) bool {
	return slices.ContainsFunc(copies, func(name string) bool { return bytes.Contains(object, []byte(name)) })
}

// Policy is what is not told of objects: the rules, and copies.
type Policy struct {
	Rules Rules
	// Copies are the kinds whose objects keep the annotations with the applied object
	// although no rule is about them, each with the names of those objects, or none for
	// all. They lose them where only metadata is told.
	Copies map[kinds.Name][]string
}

// Hide takes out of an object what must not be told, and tells whether that may have
// been something. whole says that more than metadata is told of it.
func (p Policy) Hide(kind kinds.Name, object metav1.Object, whole bool) (hidden bool) {
	hidden = p.Rules.Hide(kind, object)
	if whole && p.keeps(kind, object.GetName()) {
		return hidden
	}
	notes := object.GetAnnotations()
	if !drop(notes) {
		return hidden
	}
	object.SetAnnotations(notes)
	return true
}

func (p Policy) keeps(kind kinds.Name, name string) bool {
	names, there := p.Copies[kind]
	return there && (len(names) == 0 || slices.Contains(names, name))
}

// Of are the rules about a kind.
func (rs Rules) Of(kind kinds.Name) (some Rules) {
	for _, r := range rs {
		if r.Kind == kind {
			some = append(some, r)
		}
	}
	return some
}

// Hide takes out of an object what the rules say, and copies of it; it tells whether
// any rule was about the object. Nothing else of it is changed.
func (rs Rules) Hide(kind kinds.Name, object metav1.Object) (hidden bool) {
	for _, r := range rs {
		if r.Kind != kind || slices.Contains(r.Spared, object.GetName()) {
			continue
		}
		if content, ok := object.(interface{ UnstructuredContent() map[string]any }); ok {
			r.Path.Hide(content.UnstructuredContent())
		} else {
			r.Path.Hide(object)
		}
		hidden = true
	}
	if notes := object.GetAnnotations(); hidden && drop(notes) {
		object.SetAnnotations(notes)
	}
	return hidden
}

// Withhold takes out of an object whose content must not be told whatever may hold a
// copy of it: what its annotations say, but for Kubernetes' own.
func Withhold(object metav1.Object) {
	notes := object.GetAnnotations()
	changed := drop(notes)
	for key := range notes {
		if !strings.HasPrefix(key, "kubernetes.io/") {
			notes[key], changed = Marker, true
		}
	}
	if changed {
		object.SetAnnotations(notes)
	}
}

func drop(notes map[string]string) (dropped bool) {
	for _, name := range copies {
		if _, there := notes[name]; there {
			delete(notes, name)
			dropped = true
		}
	}
	return dropped
}
