// Package story writes a turn in a readable form: what a controller saw, when, and
// what it decided. Stories in a controller's testdata are its tests. A story taken
// from the record shows what happened once, and is a test as well.
package story

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Story is one turn. Its text is a comment and three files:
//
//	what it is about
//	-- now --
//	2030-01-01T12:00:00Z
//	-- view.yaml --
//	what the controller sees
//	-- decision.yaml --
//	what it wants, as [Render] writes it
type Story struct {
	Words    string
	Now      time.Time
	View     []byte
	Decision []byte // empty: not decided yet
}

// The files of a story.
const (
	now      = "now"
	view     = "view.yaml"
	decision = "decision.yaml"
)

// Of makes a story of a view in JSON and the decision on it.
//
// Errors: the view is no JSON, or a body in the decision is none.
func Of(words string, at time.Time, seen json.RawMessage, wanted reconcile.Decision) (Story, error) {
	s := Story{Words: words, Now: at}
	var err error
	if s.View, err = yaml.JSONToYAML(seen); err != nil {
		return s, fmt.Errorf("write a view down: %w", err)
	}
	s.Decision, err = Render(wanted)
	return s, err
}

// Parse reads a story.
//
// Errors: it has no words, no time or no view, or has another file.
func Parse(text []byte) (Story, error) {
	archive := txtar.Parse(text)
	s := Story{Words: string(bytes.TrimSpace(archive.Comment))}
	if s.Words == "" {
		return s, fmt.Errorf("the story has no words before its first file")
	}
	moment := ""
	for _, f := range archive.Files {
		switch f.Name {
		case now:
			moment = string(bytes.TrimSpace(f.Data))
		case view:
			s.View = f.Data
		case decision:
			s.Decision = f.Data
		default:
			return s, fmt.Errorf("a story has no file %s", f.Name)
		}
	}
	if moment == "" {
		return s, fmt.Errorf("the story does not say when: no file %s", now)
	}
	var err error
	if s.Now, err = time.Parse(time.RFC3339, moment); err != nil {
		return s, fmt.Errorf("read %s: %w", now, err)
	}
	if s.View == nil {
		return s, fmt.Errorf("the story does not say what is seen: no file %s", view)
	}
	return s, nil
}

// Format is the text of a story.
func (s Story) Format() []byte {
	return txtar.Format(&txtar.Archive{Comment: []byte(s.Words + "\n\n"), Files: []txtar.File{
		{Name: now, Data: []byte(s.Now.UTC().Format(time.RFC3339Nano) + "\n")},
		{Name: view, Data: s.View},
		{Name: decision, Data: s.Decision},
	}})
}
