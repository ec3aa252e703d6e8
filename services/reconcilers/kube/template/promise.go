package template

import (
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Made are the paths that a new object may hold which is made of a template: no other part
// of its metadata, and no status.
var Made = []string{".metadata.labels", ".metadata.annotations", ".metadata.finalizers", ".metadata.ownerReferences", ".metadata.generateName", ".spec"}

// Creates is the promise to create pods of the template in the key's object, which may
// differ from it in some paths of the pod, and have other finalizers besides.
func Creates(differ, finalizers []string) reconcile.Write {
	w := reconcile.Write{
		Verb: events.VerbCreate, Kind: kinds.Pods.Name, On: reconcile.Beside, Name: reconcile.After, Child: true, Fields: Made,
	}
	for _, part := range []string{".metadata.labels", ".metadata.annotations", ".spec"} {
		c := reconcile.Copy{To: part, From: ".spec.template" + part}
		for _, path := range differ {
			if rest, of := within(path, part); of {
				c.But = append(c.But, rest)
			}
		}
		w.Copies = append(w.Copies, c)
	}
	w.Copies = append(w.Copies, reconcile.Copy{To: ".metadata.finalizers", From: ".spec.template.metadata.finalizers", Plus: finalizers})
	return w
}

// within is a path from a part of an object on.
func within(path, part string) (rest string, ok bool) {
	return strings.CutPrefix(path, part)
}
