package reconcile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// Stand says how the object that a command is about stands to the key of its turn.
type Stand string

// The stands. The zero value bounds nothing.
const (
	// Itself is the key's object.
	Itself Stand = "the object of the key"
	// Namesake has the key's namespace and name.
	Namesake Stand = "of the key's namespace and name"
	// Beside is in the key's namespace.
	Beside Stand = "in the key's namespace"
	// Within is in the namespace that the key names.
	Within Stand = "in the namespace that is the key"
)

// conditions are paths that every body may hold: they name the object.
var conditions = []string{".apiVersion", ".kind", ".metadata.name", ".metadata.namespace", ".metadata.uid", ".metadata.resourceVersion"}

// Fits tells whether a command of a turn, which has its body, is within the promise: about
// which object it is, what its body holds, and whom that says to be the controller. own
// gives the key's own object as it is known, or nil.
//
// Errors: why it is not.
func (w Writes) Fits(owns *kinds.Kind, t events.Turn, c events.Command, own func() metav1.Object) error {
	if c.Verb == events.VerbRecord {
		return told(t, c)
	}
	err := fmt.Errorf("the controller never promised to %s %s", c.Verb, c.Kind)
	for _, p := range w {
		if !(Writes{p}).Allows(c) {
			continue
		}
		if err = p.fits(owns, t, c, own); err == nil {
			return told(t, c)
		}
	}
	return err
}

// Fits is [Writes.Fits] of the controller's promise.
func (d Description) Fits(t events.Turn, c events.Command, own func() metav1.Object) error {
	return d.Writes.Fits(d.Owns, t, c, own)
}

func (w Write) fits(owns *kinds.Kind, t events.Turn, c events.Command, own func() metav1.Object) error {
	if kind, known := kinds.Lookup(w.Kind); known && !w.Any && c.Version != kind.Version {
		return fmt.Errorf("%s are written in version %s, not %.40q", w.Kind, kind.Version, c.Version)
	}
	if err := w.stands(owns, t, c); err != nil {
		return err
	}
	if len(w.Named) > 0 && !slices.Contains(w.Named, c.Name) {
		return fmt.Errorf("of %s only %s may be written", w.Kind, strings.Join(w.Named, ", "))
	}
	if w.Where != "" && !has(own(), w.Where) {
		return fmt.Errorf("the key's object has no %s", w.Where)
	}
	if w.Fields == nil && !w.Child {
		return nil
	}
	var body any
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	object, ok := body.(map[string]any)
	if !ok {
		return fmt.Errorf("the body is no object")
	}
	if w.Child {
		if err := child(owns, t, c, object); err != nil {
			return err
		}
	}
	if w.Fields != nil {
		return within(object, nil, paths(append(slices.Clone(conditions), w.Fields...)))
	}
	return nil
}

func (w Write) stands(owns *kinds.Kind, t events.Turn, c events.Command) error {
	kind := t.Key.Kind
	if kind == "" && owns != nil {
		kind = owns.Name
	}
	var so bool
	switch w.On {
	case Itself:
		so = c.Kind == kind && c.Namespace == t.Key.Namespace && c.Name == t.Key.Name &&
			(t.UID == "" || c.If == nil || c.If.UID == "" || c.If.UID == t.UID)
	case Namesake:
		so = c.Namespace == t.Key.Namespace && c.Name == t.Key.Name
	case Beside:
		so = c.Namespace == t.Key.Namespace
	case Within:
		so = c.Namespace == t.Key.Name && c.Namespace != ""
	default:
		so = true
	}
	if !so {
		return fmt.Errorf("%v is not %s, %v", c.Ref(), w.On, t.Key)
	}
	return nil
}

// child tells whether the controller that a body names is the key's object. What is
// created or replaced must name it; a patch may leave the owners alone or end them.
func child(owns *kinds.Kind, t events.Turn, c events.Command, body map[string]any) error {
	meta, _ := body["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	named := 0
	for _, o := range owners {
		owner, _ := o.(map[string]any)
		if owner["controller"] != true || owner["$patch"] == "delete" {
			continue
		}
		named++
		if owns == nil || owner["kind"] != owns.Kind || owner["apiVersion"] != owns.APIVersion() || owner["name"] != t.Key.Name || t.UID == "" || owner["uid"] != string(t.UID) {
			return fmt.Errorf("the body names the controller %.60v %.60v, which is not the key's object", owner["kind"], owner["name"])
		}
	}
	if named == 0 && c.Verb != events.VerbPatch {
		return fmt.Errorf("the body does not name the key's object as the controller")
	}
	return nil
}

// within tells whether a body holds nothing but what paths lead to.
func within(body map[string]any, at redact.Path, allowed []redact.Path) error {
	for name, value := range body {
		if directive, field, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(directive, "$") {
			name = field // of a strategic merge: what it does with a list
		}
		here := append(slices.Clone(at), redact.Step{Name: name})
		if slices.ContainsFunc(allowed, func(p redact.Path) bool { return p.Covers(here) }) {
			continue
		}
		deeper := slices.ContainsFunc(allowed, func(p redact.Path) bool { return len(p) > len(here) && here.Covers(p) })
		inner, object := value.(map[string]any)
		if !deeper || !object {
			return fmt.Errorf("the body holds %.80s, which is not promised", here)
		}
		if err := within(inner, here, allowed); err != nil {
			return err
		}
	}
	return nil
}

func paths(texts []string) []redact.Path {
	all := make([]redact.Path, 0, len(texts))
	for _, text := range texts {
		all = append(all, redact.MustParsePath(text))
	}
	return all
}

// has tells whether an object has something at a field of the first level.
func has(obj metav1.Object, field string) bool {
	if obj == nil {
		return false
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return err == nil && content[strings.TrimPrefix(field, ".")] != nil
}

// told tells whether the notices of a command are about objects of the key's or the
// command's namespace, or of none.
func told(t events.Turn, c events.Command) error {
	for _, n := range []*events.Notice{t.NoticeAt(c.Applied), t.NoticeAt(c.Failed), c.OnApplied, c.OnFailed} {
		if n == nil || slices.Contains([]string{"", t.Key.Namespace, c.Namespace}, n.About.Namespace) || t.Key.Namespace == "" {
			continue
		}
		return fmt.Errorf("a notice is about an object of namespace %.63q, and the turn about %v", n.About.Namespace, t.Key)
	}
	return nil
}

// String is the promise as the documents have it.
func (w Write) String() string {
	var b bytes.Buffer
	what := string(w.Kind)
	if w.Any {
		what = "any kind"
	}
	if w.Subresource != "" {
		what += "/" + w.Subresource
	}
	fmt.Fprintf(&b, "%s %s", w.Verb, what)
	add := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	if len(w.Named) > 0 {
		add(" named %s", strings.Join(w.Named, ", "))
	}
	if w.On != "" {
		add(", %s", w.On)
	}
	if w.Child {
		add(", with the key's object as its controller")
	}
	if w.Fields != nil {
		add(", only %s", strings.Join(w.Fields, ", "))
	}
	if w.Where != "" {
		add(", where the key's object has %s", w.Where)
	}
	return b.String()
}
