package reconcile

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// unread is what no decision of any controller rests on, of kinds that are read in full,
// but for controllers that say so ([Input].Also). The law "blind" of package
// reconciletest holds every controller to it. What is not here counts as read: to forget
// a path costs a user a rule, to have one too many would cost a wrong decision.
var unread = map[kinds.Name][]redact.Path{
	kinds.Pods.Name: Containers("env", "envFrom", "args", "command"),
}

// Containers are the paths of some fields of a pod's containers of all sorts.
func Containers(fields ...string) (paths []redact.Path) {
	for _, sort := range []string{"containers", "initContainers", "ephemeralContainers"} {
		for _, field := range fields {
			paths = append(paths, redact.Path{{Name: "spec"}, {Name: sort}, {Each: true}, {Name: field}})
		}
	}
	return paths
}

// Reads tells whether what a controller does may rest on what a path leads to in the
// objects of a kind, so that it must not be hidden from it. only are the names of the
// objects that it reads, where those are known.
//
// Who replaces an object as a whole would write back what it was told, and copies
// annotations along: it reads all of it.
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

// Named are the names of the objects that a controller reads of a kind, where it reads no
// others.
func (d Description) Named(kind kinds.Name) []string {
	for _, in := range d.Inputs {
		if !in.Every && in.Kind.Name == kind {
			return in.Named
		}
	}
	return nil
}

// also tells whether a path leads to something that the controller reads although
// no other controller does, or to a part of it.
func (in Input) also(path redact.Path) bool {
	return slices.ContainsFunc(in.Also, func(read redact.Path) bool { return read.Covers(path) || path.Covers(read) })
}

// replaces tells whether a controller writes objects back with what a path leads to. A
// status is written with the object's annotations, which the API server takes over; of the
// rest it takes nothing but the status.
func (d Description) replaces(kind kinds.Name, path redact.Path) bool {
	_, note := noteOf(path)
	for _, w := range d.Writes {
		if w.Verb == events.VerbUpdate && (w.Any && w.Subresource == "" || !w.Any && w.Kind == kind && (note || w.Subresource == "")) {
			return true
		}
	}
	return false
}

// overlooked tells whether no controller reads what a path leads to. Of annotations that are
// those of other domains than Kubernetes'.
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

// noteOf is the annotation that a path leads to.
func noteOf(path redact.Path) (key string, ok bool) {
	if len(path) != 3 || path[0].Name != "metadata" || path[1].Name != "annotations" || path[2].Each {
		return "", false
	}
	return path[2].Name, true
}
