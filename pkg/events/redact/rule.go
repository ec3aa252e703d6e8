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

// Rule hides the values at a path in the objects of a kind.
type Rule struct {
	Kind kinds.Name
	// Spared are the names of objects that the rule leaves alone, in any namespace.
	Spared []string
	Path   Path
}

// Rules are all rules.
type Rules []Rule

// Parse parses a rule: KIND:PATH, or KIND!NAME:PATH for all objects except those of that name.
//
// Errors: the text is no rule, or the rule would hide fields that identify an object; the
// message says what to write.
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

// annotations are the only part of an object's metadata that may be hidden.
var annotations = Path{{Name: "metadata"}, {Name: "annotations"}}

// possible is an error if a rule would hide fields that every reader needs, or if the kind has
// no such path.
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
	return nil // kinds without a Go type here are published as metadata only
}

// copies are the annotations in which tools keep the whole object as it was applied.
var copies = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	"kapp.k14s.io/original",
	"objectset.rio.cattle.io/applied",
	"banzaicloud.com/last-applied",
}

// Copied reports whether an object, in JSON or protobuf, has a copy of itself in an annotation.
func Copied(object []byte) bool {
	return slices.ContainsFunc(copies, func(name string) bool { return bytes.Contains(object, []byte(name)) })
}

// Policy says what is removed from objects: the rules, and copies.
type Policy struct {
	Rules Rules
	// Copies are the kinds whose objects keep the annotations with copies if no rule hides
	// anything of them, each with the names of those objects, or none for all. They lose the
	// annotations if only metadata is published.
	Copies map[kinds.Name][]string
}

// Hide removes from an object what must not be published, and reports whether there may have been
// anything to remove. whole says that more than the object's metadata is published.
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

// Of are the rules of a kind.
func (rs Rules) Of(kind kinds.Name) (some Rules) {
	for _, r := range rs {
		if r.Kind == kind {
			some = append(some, r)
		}
	}
	return some
}

// Hide applies the rules to an object, and removes copies if a rule applied; it reports whether
// any rule applied. It changes nothing else.
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

// Withhold removes possible copies from an object whose content must not be published: it
// replaces the values of all annotations except Kubernetes' own.
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
