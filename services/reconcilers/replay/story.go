package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/services/reconcilers/story"
)

// Story makes a story of a turn that was replayed with [Options.Views]; saved in the
// testdata of its controller it is a test. It has the whole decision of this code, of
// which a turn is one lane. If that lane differs, the story has the recorded one.
//
// Errors: the turn could not be judged, or this code has nothing to decide in what the
// turn saw.
func (c Case) Story() (story.Story, error) {
	switch {
	case c.Verdict == Unjudged && c.View == nil:
		return story.Story{}, fmt.Errorf("turn %d of %s cannot be told: %s: %s", c.Sequence, c.Controller, c.Why, c.Detail)
	case c.View == nil:
		return story.Story{}, fmt.Errorf("turn %d of %s: this program has nothing to decide about in what it saw %s", c.Sequence, c.Controller, c.Broken)
	}
	decision := c.Decision
	words := fmt.Sprintf("%s.\nTurn %d of %s, about %v, decided at %s by %s.", upper(c.Turn.Because), c.Sequence, c.Controller, c.Turn.Key,
		c.Turn.Now.UTC().Format(time.RFC3339), c.Code())
	if c.Verdict != Same {
		decision = Decision(c.Turn)
		words += "\nThe program that wrote this down decides otherwise: this is what was decided then, in the lane of the turn (" + c.Turn.Lane.String() + ")."
	}
	return story.Of(words, c.Turn.Now, c.View, decision)
}

// Code is the version that decided.
func (c Case) Code() string {
	if c.Turn.Code == "" {
		return "a version without a name"
	}
	return c.Turn.Code
}

func upper(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
