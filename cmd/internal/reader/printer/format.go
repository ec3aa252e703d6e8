package printer

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// Time formats a time for a terminal, in the local time zone; "?" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
}

// Generation formats the generation of an object, with a space before it; empty for 0.
func Generation(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" generation %d", n)
}

// longest is the maximum length of a shown value, in characters.
const longest = 120

// Shorten is text in one line, with its end left out if it is longer than 120 characters.
func Shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest-1]) + "…"
	}
	return text
}

// Changes writes changed fields, one a line.
func (p *Paper) Changes(indent string, changes []fields.Change) {
	for _, c := range changes {
		was, is := Shorten(fields.Text(c.Was)), Shorten(fields.Text(c.Is))
		switch {
		case c.Was == nil:
			p.Line("%s%s", indent, p.In(Green, "+ "+c.Path+": "+is))
		case c.Is == nil:
			p.Line("%s%s", indent, p.In(Red, "- "+c.Path+": "+was))
		default:
			p.Line("%s%s", indent, p.In(Yellow, "~ "+c.Path+": "+was+" -> "+is))
		}
	}
}

// Owner is the controller of an object, or else its first owner, as KIND/NAME; empty if the
// object has no owner.
func Owner(object unstructured.Unstructured) string {
	owner := metav1.GetControllerOf(&object)
	if owners := object.GetOwnerReferences(); owner == nil && len(owners) > 0 {
		owner = &owners[0]
	}
	if owner == nil {
		return ""
	}
	return strings.ToLower(owner.Kind) + "/" + owner.Name
}

// ArgumentOf is an object as an argument of the commands, with its namespace.
func ArgumentOf(ref events.Ref) string {
	return Argument(string(ref.Kind)+"/"+ref.Name, ref.Namespace)
}

// Argument is KIND/NAME as an argument of the commands, with the flag of its namespace; the
// namespace is empty for a cluster-scoped object.
func Argument(object, namespace string) string {
	if namespace == "" {
		return object
	}
	return object + " -n " + namespace
}
