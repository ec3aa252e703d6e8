package controllers

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// A kind that a controller reads in full must have a Go type, or every object of it is set aside.
func TestWhatIsReadCanBeRead(t *testing.T) {
	for _, e := range Catalog() {
		if !e.Exists() {
			continue
		}
		for _, in := range e.make(config).Describe().Inputs {
			if in.Kind.Form == kinds.Full && !kinds.Scheme().Recognizes(in.Kind.GVK()) {
				t.Errorf("%s reads %v, of which kinds.Scheme has no type", e.Name, in.Kind)
			}
		}
	}
}
