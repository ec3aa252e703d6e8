package cluster

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Judgement judges a decision by the view that it rests on.
type Judgement func(l *Look, f Findings)

// Findings collects the violations of a turn.
type Findings struct {
	Guard *Guard
	Turn  string
}

// Breaks reports that the turn breaks a rule.
func (f Findings) Breaks(rule, format string, args ...any) {
	f.Guard.Breaks(rule, "%s %s", f.Turn, fmt.Sprintf(format, args...))
}

// Spares reports that the turn is not judged by a rule, and why.
func (f Findings) Spares(e Exception) { f.Guard.Spare(e) }

// Has reports whether the view has an object.
func (l *Look) Has(kind kinds.Name, namespace, name string) bool {
	return slices.ContainsFunc(l.List(kind), func(o metav1.Object) bool { return o.GetNamespace() == namespace && o.GetName() == name })
}
