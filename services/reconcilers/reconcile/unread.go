package reconcile

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// unread are the fields, of kinds that are read in full, on which no decision of any
// controller depends, except for controllers that declare them ([Input].Also). The law
// "blind" of package reconciletest checks this for every controller. All other fields count
// as read: a path missing here costs a user a redaction rule, a path too many would cost a
// wrong decision.
var unread = map[kinds.Name][]redact.Path{
	kinds.Pods.Name: Containers("env", "envFrom", "args", "command"),
}

// Containers returns the paths of some fields in all kinds of a pod's containers.
func Containers(fields ...string) (paths []redact.Path) {
	for _, sort := range []string{"containers", "initContainers", "ephemeralContainers"} {
		for _, field := range fields {
			paths = append(paths, redact.Path{{Name: "spec"}, {Name: sort}, {Each: true}, {Name: field}})
		}
	}
	return paths
}

// Reads reports whether the controller's decisions may depend on the values at a path in the
// objects of a kind, so that these must not be redacted. only are the names of the objects
// that it reads, if it reads no others.
//
// A controller that replaces whole objects, or copies their annotations, would write
// redacted values back. It counts as reading all of them.
func (d Description) Reads(kind kinds.Name, path redact.Path) (reads bool, only []string) {
	for _, in := range d.Inputs {
		if in.Every || in.Kind.Name != kind {
			continue
		}
		switch {
		case len(in.Named) > 0:
			return true, in.Named
		case d.replaces(kind, path):
			return true, nil
		case in.Bare:
			continue
		case !overlooked(kind, path), in.also(path):
			return true, nil
		}
	}
	return false, nil
}

// Named are the names of the objects of a kind that the controller reads; empty if it reads
// all.
func (d Description) Named(kind kinds.Name) []string {
	for _, in := range d.Inputs {
		if !in.Every && in.Kind.Name == kind {
			return in.Named
		}
	}
	return nil
}

// also reports whether a path leads to, or into, a field that this controller reads and no
// other does.
func (in Input) also(path redact.Path) bool {
	return slices.ContainsFunc(in.Also, func(read redact.Path) bool { return read.Covers(path) || path.Covers(read) })
}

// replaces reports whether a controller writes the value at a path back. An update of a status
// carries the object's annotations, which the API server takes over; apart from them and the
// status it ignores the body.
func (d Description) replaces(kind kinds.Name, path redact.Path) bool {
	_, note := noteOf(path)
	for _, w := range d.Writes {
		if w.Verb == events.VerbUpdate && (w.Any && w.Subresource == "" || !w.Any && w.Kind == kind && (note || w.Subresource == "")) {
			return true
		}
	}
	return false
}

// overlooked reports whether no controller reads the value at a path. Controllers read no
// annotations of domains other than Kubernetes'.
func overlooked(kind kinds.Name, path redact.Path) bool {
	if note, ok := noteOf(path); ok {
		domain, _, there := strings.Cut(note, "/")
		return there && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
	}
	for _, free := range unread[kind] {
		if free.Covers(path) {
			return true
		}
	}
	return false
}

// noteOf returns the key of the annotation at a path.
func noteOf(path redact.Path) (key string, ok bool) {
	if len(path) != 3 || path[0].Name != "metadata" || path[1].Name != "annotations" || path[2].Each {
		return "", false
	}
	return path[2].Name, true
}
